// SPDX-License-Identifier: Apache-2.0
#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <iostream>

#include "app/check_command.h"
#include "app/query_command.h"
#include "app/recording_commands.h"
#include "app/recordings_command.h"
#include "app/trace_options.h"
#include "app/version.h"
#include "base/byte_size.h"
#include "base/log.h"
#include "base/text.h"
#include "config/duration.h"
#include "config/settings.h"
#include "export/metrics_table.h"

namespace ingero::app {
namespace {

constexpr int kUsageError = 2;

/// The flags as they are typed; empty: not given.
struct Flags {
  bool nccl = false, cuda = false, print = false, json = false;
  std::string prometheus, format, cgroup, duration, config_file, log_level, attach_method,
      open_method;
  std::string kubernetes = "auto";
  KubernetesOptions cluster;
  std::uint32_t pid = 0;
  std::vector<std::string> tallies;
  std::string out, max_size, wait_threshold, off_cpu_threshold;
};

int say(const std::string& command, const Error& error) {
  std::cerr << "ingero " << command << ": " << error.message() << "\n";
  return kUsageError;
}

void add_run_flags(CLI::App& command, Flags& flags) {
  command.add_flag("--nccl", flags.nccl, "trace NCCL and RCCL (default: all)");
  command.add_flag("--cuda", flags.cuda, "trace CUDA copies (default: all)");
  command.add_option("--prometheus", flags.prometheus,
                     "serve /metrics there: :9090, 127.0.0.1:9090, [::1]:9090");
  command.add_option("--config", flags.config_file, "settings, as YAML");
  command.add_option("--duration", flags.duration, "end by itself after: 30s, 2m, 1h");
  command.add_option("--log-level", flags.log_level, "trace, debug, info, warn, error");
  command.add_option("--attach-method", flags.attach_method,
                     "auto, session, multi, perf, entry_only");
  command.add_option("--open-method", flags.open_method, "auto, map_files, path");
}

void add_trace_flags(CLI::App& command, Flags& flags) {
  add_run_flags(command, flags);
  command.add_flag("--print", flags.print, "one line for each call instead of the table");
  command.add_option("--format", flags.format,
                     "of the printed calls: text (default) or json; json implies --print");
  command.add_option("--out", flags.out, "record every call into this SQLite file; see query");
  command.add_option("--max-size", flags.max_size,
                     "of the recording, such as 2GiB (default: none)");
  command.add_option("--wait-threshold", flags.wait_threshold,
                     "record waits for a CPU of that length or more (default: 1ms; 0: none)");
  command.add_option(
      "--off-cpu-threshold", flags.off_cpu_threshold,
      "record times that a thread slept, that long or longer (default: 10ms; 0: none)");
  command.add_option("--pid", flags.pid, "only this process");
  command.add_option(
      "--cgroup", flags.cgroup,
      "only this cgroup and those below (path from the hierarchy's root), or a container id");
  command.add_option(
      "--tally", flags.tallies,
      "CONTAINER=FILE: compare with a workload's own tally at the end; exit status 1 "
      "when it differs");
}

void add_agent_flags(CLI::App& command, Flags& flags) {
  command
      .add_option("--kubernetes", flags.kubernetes,
                  "auto (default): where a service account or --kubeconfig is; on; off")
      ->check(CLI::IsMember({"auto", "on", "off"}));
  command.add_option("--kubeconfig", flags.cluster.kubeconfig,
                     "reach the API server as this file says, not by the pod's service account");
  command.add_option("--context", flags.cluster.context, "of the kubeconfig");
  command.add_option("--node-name", flags.cluster.node, "name of this Kubernetes node")
      ->envname("NODE_NAME");
  command.add_option("--pod-name", flags.cluster.pod, "name of the agent's own pod")
      ->envname("POD_NAME");
  command
      .add_option("--namespace", flags.cluster.k8s_namespace, "namespace of the agent's own pod")
      ->envname("POD_NAMESPACE");
  command.add_option("--config-map", flags.cluster.config_map,
                     "watch the settings in this ConfigMap ([NAMESPACE/]NAME, key config.yaml)");
  command.add_option("--lease", flags.cluster.lease,
                     "take part in the election of the agent that writes the status of policies");
  command.add_option("--owner-cluster-role", flags.cluster.owner_cluster_role,
                     "delete the node's report when this ClusterRole goes (default: the node)");
}

/// The configuration's text form of the flags that override it.
std::string overrides(const Flags& flags) {
  std::string yaml;
  const auto set = [&](const char* key, const std::string& value) {
    if (!value.empty()) yaml += fmt::format("{}: \"{}\"\n", key, value);
  };
  set("log_level", flags.log_level);
  set("attach_method", flags.attach_method);
  set("open_method", flags.open_method);
  return yaml;
}

Status apply_overrides(const Flags& flags, config::Config& config) {
  const auto given = config::parse_config(overrides(flags), "flags");
  if (!given) return fail(given.error());
  if (!flags.log_level.empty()) config.log_level = given->log_level;
  if (!flags.attach_method.empty()) config.attach_method = given->attach_method;
  if (!flags.open_method.empty()) config.open_method = given->open_method;
  if (flags.nccl || flags.cuda) config.probes = {flags.nccl, flags.cuda};
  return {};
}

Status parse_tallies(const Flags& flags, TraceOptions& options) {
  for (const std::string& text : flags.tallies) {
    const auto at = text.rfind('=');
    if (at == std::string::npos)
      return fail({"read --tally", text, "no '=' in it", "write CONTAINER=FILE"});
    options.tallies.emplace_back(text.substr(0, at), text.substr(at + 1));
  }
  return {};
}

/// Whether the agent talks to an API server, and under which name it finds its node there.
Status choose_cluster(const Flags& flags, KubernetesOptions& options) {
  options = flags.cluster;
  const bool in_pod = ::getenv("KUBERNETES_SERVICE_HOST") != nullptr;
  options.enabled = flags.kubernetes == "on" ||
                    (flags.kubernetes == "auto" && (in_pod || !options.kubeconfig.empty()));
  if (!options.enabled || !options.node.empty()) return {};
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return fail_errno("read host name", "");
  options.node = name.data();
  return {};
}

/// A duration that belongs to the recording; not given: it stays.
Status parse_threshold(const Flags& flags, const std::string& flag, const std::string& text,
                       std::chrono::nanoseconds& threshold) {
  if (text.empty()) return {};
  const auto duration = config::parse_duration(text);
  if (!duration) return fail({"read " + flag, text, "not a duration", "write 10ms, or 0 for none"});
  if (flags.out.empty())
    return fail({"read " + flag, text, "nothing is recorded", "add --out FILE"});
  threshold = *duration;
  return {};
}

Status parse_thresholds(const Flags& flags, RecordingOptions& options) {
  if (auto status =
          parse_threshold(flags, "--wait-threshold", flags.wait_threshold, options.wait_threshold);
      !status)
    return status;
  return parse_threshold(flags, "--off-cpu-threshold", flags.off_cpu_threshold,
                         options.off_cpu_threshold);
}

Status parse_recording(const Flags& flags, RecordingOptions& options) {
  options.path = flags.out;
  if (flags.pid != 0) options.selection = fmt::format("pid {}", flags.pid);
  if (!flags.cgroup.empty())
    options.selection +=
        fmt::format("{}cgroup {}", options.selection.empty() ? "" : ", ", flags.cgroup);
  if (auto status = parse_thresholds(flags, options); !status) return status;
  if (flags.max_size.empty()) return {};
  const auto size = parse_byte_size(flags.max_size);
  if (!size) return fail({"read --max-size", flags.max_size, "not a size", "write 500MiB or 2GiB"});
  if (flags.out.empty())
    return fail({"read --max-size", flags.max_size, "nothing is recorded", "add --out FILE"});
  options.max_bytes = *size;
  return {};
}

Result<TraceOptions> trace_options(const Flags& flags) {
  TraceOptions options;
  options.config_file = flags.config_file;
  options.overrides = [flags](config::Config& config) { return apply_overrides(flags, config); };
  if (!flags.config_file.empty()) {
    auto config = config::load_config(flags.config_file);
    if (!config) return fail(config.error());
    options.config = *config;
  }
  if (auto status = apply_overrides(flags, options.config); !status) return fail(status.error());
  if (!flags.prometheus.empty()) {
    const auto address = parse_listen_address(flags.prometheus);
    if (!address) return fail(address.error());
    options.serve = *address;
  }
  if (!flags.duration.empty()) {
    options.duration = config::parse_duration(flags.duration);
    if (!options.duration)
      return fail({"read --duration", flags.duration, "not a duration", "write 30s, 2m or 1h30m"});
  }
  if (!flags.format.empty() && flags.format != "text" && flags.format != "json")
    return fail({"read --format", flags.format, "not a format", "write text or json"});
  options.json = flags.format == "json";
  options.print_calls = flags.print || options.json;
  if (flags.pid != 0) options.pid = flags.pid;
  options.cgroup = flags.cgroup;
  if (auto status = parse_recording(flags, options.recording); !status) return fail(status.error());
  if (auto status = parse_tallies(flags, options); !status) return fail(status.error());
  return options;
}

int trace(const Flags& flags, bool as_agent) {
  const std::string name = as_agent ? "agent" : "trace";
  auto options = trace_options(flags);
  if (!options) return say(name, options.error());
  if (as_agent) {
    options->show_table = false;
    options->follow_listen_address = !options->serve;
    options->keep_ended = false;  // it runs for months
    if (!options->serve) options->serve = options->config.listen_address;
    if (auto status = choose_cluster(flags, options->kubernetes); !status)
      return say(name, status.error());
  }
  setup_log(options->config.log_level, options->config.log_format);
  const auto status = run_trace(std::move(*options));
  return status ? *status : say(name, status.error());
}

int version() {
  std::cout << "ingero " << kVersion << " (" << kRevision << ")\n";
  return 0;
}

int print_reference(const std::string& what) {
  if (what == "metrics") std::cout << exporting::metrics_reference_markdown();
  else if (what == "config") std::cout << config::config_reference_markdown();
  else
    return say("reference", {"print reference", what, "there is none", "write metrics or config"});
  return 0;
}

/// One line instead of the library's usage text.
int usage_error(const CLI::App& app, const CLI::ParseError& error, std::string_view first_word) {
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error);
  if (app.get_subcommands().empty() && !first_word.empty() && first_word.front() != '-') {
    std::cerr << "ingero: there is no command " << escape_terminal(first_word)
              << "; hint: ingero --help\n";
    return kUsageError;
  }
  std::string command = "ingero";
  for (const CLI::App* used : app.get_subcommands()) command += " " + used->get_name();
  std::cerr << command << ": " << error.what() << "; hint: " << command << " --help\n";
  return kUsageError;
}

/// A scrape needs megabytes for milliseconds. By default the allocator would keep them, once for each of
/// the server's threads.
void keep_memory_small() {
  ::mallopt(M_ARENA_MAX, 1);
  ::mallopt(M_MMAP_THRESHOLD, 128 << 10);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 20);
}

int run(int argc, char** argv) {
  keep_memory_small();
  CLI::App app{
      "Sees what GPU jobs do: exact NCCL and CUDA copy metrics per container, without touching "
      "them."};
  app.require_subcommand(1);
  Flags flags;
  bool check_json = false;
  std::string reference;
  CLI::App* trace_command =
      app.add_subcommand("trace", "watch this host: live table, metrics, single calls");
  add_trace_flags(*trace_command, flags);
  CLI::App* agent_command =
      app.add_subcommand("agent", "serve metrics without a table, as in a DaemonSet");
  add_run_flags(*agent_command, flags);
  add_agent_flags(*agent_command, flags);
  CLI::App* check_command =
      app.add_subcommand("check", "tell what works on this host and what is missing");
  check_command->add_flag("--json", check_json, "for programs");
  QueryOptions query;
  CLI::App* query_command =
      app.add_subcommand("query", "ask recordings by SQL: ingero query FILE... \"SELECT ...\"");
  query_command
      ->add_option("words", query.words, "recordings, then the SQL (else it is read from stdin)")
      ->required();
  query_command->add_option("-f,--file", query.sql_file, "read the SQL from this file");
  query_command->add_option("--format", query.format, "table (default), csv, json, markdown");
  query_command->add_flag("--schema", query.schema, "print tables and columns with their meaning");
  ReportOptions report;
  CLI::App* report_command =
      app.add_subcommand("report", "a page about recordings: slowest, late, lost, failed");
  report_command->add_option("files", report.files, "recordings; several are one")->required();
  report_command->add_flag("--html", report.html, "as one HTML file with plots");
  report_command->add_option("-o,--output", report.out, "write it there (default: stdout)");
  ExportOptions exported;
  CLI::App* export_command =
      app.add_subcommand("export", "a time line of recordings for ui.perfetto.dev, or a copy");
  export_command->add_option("files", exported.files, "recordings; several are one")->required();
  export_command->add_option(
      "--format", exported.format,
      "perfetto (default); sqlite: a copy of one recording as one file, also "
      "while it is being recorded");
  export_command->add_option("-o,--output", exported.out, "write it there (default: stdout)");
  RecordingsOptions recordings;
  CLI::App* recordings_command =
      app.add_subcommand("recordings", "list the recordings of pods that are on this node");
  recordings_command->add_option("directory", recordings.directory,
                                 "where they are (default: " + recordings.directory + ")");
  recordings_command->add_option("--format", recordings.format,
                                 "table (default), csv, json, markdown");
  CLI::App* version_command = app.add_subcommand("version", "print the version");
  CLI::App* reference_command =
      app.add_subcommand("reference", "print a generated page of the documentation");
  reference_command->add_option("page", reference, "metrics or config")->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return usage_error(app, error, argc > 1 ? argv[1] : "");
  }
  if (trace_command->parsed()) return trace(flags, false);
  if (agent_command->parsed()) return trace(flags, true);
  if (check_command->parsed()) return run_check(check_json);
  if (query_command->parsed()) return run_query(query);
  if (report_command->parsed()) return run_report(report);
  if (export_command->parsed()) return run_export(exported);
  if (recordings_command->parsed()) return run_recordings(recordings);
  if (version_command->parsed()) return version();
  if (reference_command->parsed()) return print_reference(reference);
  return kUsageError;
}

/// Each probe, file and client takes descriptors; who needs select() is not among our libraries.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));
}

}  // namespace
}  // namespace ingero::app

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);  // a reader that has gone is an error of write(), with a clean end
  ingero::app::raise_descriptor_limit();
  try {
    return ingero::app::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "ingero: " << error.what() << "\n";
    return 2;
  }
}
