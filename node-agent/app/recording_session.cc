// SPDX-License-Identifier: Apache-2.0
#include "app/recording_session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>

#include "app/recording_rows.h"
#include "base/text.h"

namespace ingero::app {
namespace {

using namespace std::chrono_literals;

constexpr auto kStateInterval = 2s;

/// Who called sudo: the recording is for them to read.
std::optional<std::pair<uid_t, gid_t>> owner_of_recording() {
  const char* uid = ::getenv("SUDO_UID");
  const char* gid = ::getenv("SUDO_GID");
  if (::geteuid() != 0 || uid == nullptr || gid == nullptr) return std::nullopt;
  return std::pair{static_cast<uid_t>(std::strtoul(uid, nullptr, 10)),
                   static_cast<gid_t>(std::strtoul(gid, nullptr, 10))};
}

}  // namespace

Result<std::unique_ptr<RecordingSession>> RecordingSession::start(boost::asio::io_context& io,
                                                                  Agent& agent,
                                                                  const RecordingOptions& options) {
  std::unique_ptr<RecordingSession> session(new RecordingSession(io, agent, options.path));
  record::RecorderOptions wanted = recorder_options(agent);
  wanted.path = options.path;
  wanted.facts.selection = options.selection;
  wanted.facts.wait_threshold_ns = options.wait_threshold.count();
  wanted.facts.off_cpu_threshold_ns = options.off_cpu_threshold.count();
  wanted.owner = owner_of_recording();
  wanted.max_bytes = options.max_bytes;
  auto recorder = record::Recorder::create(std::move(wanted), agent.clock());
  if (!recorder) return fail(recorder.error());
  session->recorder_ = std::move(*recorder);
  session->tell_state();
  return session;
}

void RecordingSession::tell_state() {
  recorder_->update(agent_.snapshot());
  timer_.expires_after(kStateInterval);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) tell_state();
  });
}

RecordingSession::End RecordingSession::finish(const std::string& reason) {
  recorder_->update(agent_.snapshot());
  const record::RecorderStatus status = recorder_->finish(reason);
  End end;
  end.complete = status.stopped.empty() && status.trouble.empty();
  const std::uint64_t calls = status.nccl_calls + status.cuda_calls;
  end.text = fmt::format("recorded: {} NCCL and {} CUDA calls in {} ({}",
                         format_count(status.nccl_calls), format_count(status.cuda_calls),
                         escape_terminal(path_), format_bytes(static_cast<double>(status.bytes)));
  if (calls != 0)
    end.text += fmt::format(", {:.0f} bytes per call",
                            static_cast<double>(status.bytes) / static_cast<double>(calls));
  end.text += ")\n";
  std::string lost;
  for (const auto& [name, count] : status.losses)
    if (count != 0)
      lost += fmt::format("{}{} {}", lost.empty() ? "" : ", ", format_count(count), name);
  end.text += fmt::format("lost while recording: {}\n", lost.empty() ? "0" : lost);
  if (!end.complete) end.text += fmt::format("recording ended early: {}\n", status.trouble);
  return end;
}

}  // namespace ingero::app
