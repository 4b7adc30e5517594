// SPDX-License-Identifier: Apache-2.0
#include "app/check_command.h"

#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <utility>

#include "app/agent.h"
#include "app/choices.h"
#include "base/log.h"
#include "cli/check_report.h"
#include "cli/host_check.h"
#include "cli/host_facts.h"
#include "cli/terminal.h"

namespace ingero::app {
namespace {

void try_methods(cli::CheckInput& input) {
  const auto trials = attach::try_attach_methods();
  for (const attach::MethodTrial& trial : trials)
    input.methods.push_back({std::string(to_string(trial.method)), trial.works, trial.detail});
  const auto method = choose_method(trials, config::AttachMethod::automatic);
  if (!method) return;
  const auto seccomp = attach::try_return_probe_under_seccomp(*method);
  if (seccomp.tried)
    input.seccomp = seccomp.survives ? cli::SeccompSafety::kSafe : cli::SeccompSafety::kUnsafe;
}

/// One look at the host, as the agent would take it: a start with the real programs. Nothing stays attached.
std::shared_ptr<const model::Snapshot> look_at_host(cli::StartResult& start) {
  boost::asio::io_context io;
  start.tried = true;
  auto agent = Agent::create(io, {});
  if (agent) return (*agent)->snapshot();
  Error error = agent.error();
  start.hint = std::exchange(error.hint, "");
  start.error = error.message();
  return nullptr;
}

}  // namespace

int run_check(bool json) {
  setup_log(LogLevel::warn, LogFormat::text);  // to stderr: standard output is the report alone
  cli::CheckInput input;
  input.facts = cli::gather_host_facts({}, cli::machine_architecture());
  try_methods(input);
  const auto snapshot = look_at_host(input.start);
  input.snapshot = snapshot.get();
  const cli::CheckReport report = cli::check_host(input);
  const bool terminal = cli::is_terminal(STDOUT_FILENO);
  const std::string text =
      json ? cli::check_json(report)
           : cli::render_check(report, terminal ? cli::terminal_size(STDOUT_FILENO).width : 0,
                               cli::wants_colour(STDOUT_FILENO));
  static_cast<void>(cli::write_all(STDOUT_FILENO, text));
  return report.exit_status();
}

}  // namespace ingero::app
