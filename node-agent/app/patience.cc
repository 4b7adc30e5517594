// SPDX-License-Identifier: Apache-2.0
#include "app/patience.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/terminal.h"

namespace ingero::app {
namespace {

constexpr double kSecondsBefore = 2.0, kSecondsBetween = 0.5;

volatile sig_atomic_t interrupted = 0;
extern "C" void note_interrupt(int) { interrupted = 1; }

}  // namespace

void note_ctrl_c() {
  struct sigaction action {};
  action.sa_handler = note_interrupt;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGINT, &action, nullptr);
}

bool was_interrupted() { return interrupted != 0; }

Patience::Patience() : on_terminal_(cli::is_terminal(STDERR_FILENO)) {}

bool Patience::watch(std::uint64_t count, const char* what) {
  if (was_interrupted()) return true;
  if (!on_terminal_) return false;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - began_;
  const double seconds = elapsed.count();
  if (seconds < kSecondsBefore || seconds < shown_ + kSecondsBetween) return false;
  shown_ = seconds;
  visible_ = true;
  static_cast<void>(cli::write_all(
      STDERR_FILENO, fmt::format("\r{} s, {} {}; Ctrl-C ends it ", static_cast<int>(seconds),
                                 format_count(count), what)));
  return false;
}

void Patience::clear() {
  if (!visible_) return;
  visible_ = false;
  static_cast<void>(cli::write_all(STDERR_FILENO, "\r\x1b[K"));
}

}  // namespace ingero::app
