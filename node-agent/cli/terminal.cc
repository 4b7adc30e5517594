// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace ingero::cli {
namespace {

constexpr std::string_view kHideCursor = "\x1b[?25l";
constexpr std::string_view kShowCursor = "\x1b[?25h";
constexpr std::string_view kWrapOff =
    "\x1b[?7l";  // a line that is too wide must not push the others
constexpr std::string_view kWrapOn = "\x1b[?7h";
constexpr std::string_view kBeginUpdate = "\x1b[?2026h";  // shown at once where this is known
constexpr std::string_view kEndUpdate = "\x1b[?2026l";
constexpr std::string_view kClearLineEnd = "\x1b[K";
constexpr std::string_view kClearBelow = "\x1b[J";
constexpr std::string_view kClearScreen = "\x1b[H\x1b[2J";

}  // namespace

bool is_terminal(int fd) { return ::isatty(fd) == 1; }

bool wants_colour(int fd) {
  const char* no_colour = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  if (no_colour != nullptr && *no_colour != '\0') return false;
  if (term == nullptr || std::string_view(term) == "dumb") return false;
  return is_terminal(fd);
}

TerminalSize terminal_size(int fd) {
  winsize answer{};
  TerminalSize size;
  if (::ioctl(fd, TIOCGWINSZ, &answer) != 0) return size;
  if (answer.ws_col != 0) size.width = answer.ws_col;  // 0: a serial line that does not know
  if (answer.ws_row != 0) size.height = answer.ws_row;
  return size;
}

Status write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return fail_errno("write the output", fmt::format("fd {}", fd));
    pollfd wait{fd, POLLOUT, 0};  // someone made the descriptor non-blocking
    if (::poll(&wait, 1, -1) < 0 && errno != EINTR) {
      return fail_errno("wait for the output", fmt::format("fd {}", fd));
    }
  }
  return {};
}

std::string LiveScreen::compose(std::string_view frame, TerminalSize size) {
  std::string out;
  out.append(kBeginUpdate).append(kHideCursor).append(kWrapOff);
  if (lines_ != 0 && size != size_) {
    out += kClearScreen;  // the terminal has moved the old lines to where nobody can tell
  } else if (lines_ > 1) {
    out += fmt::format("\r\x1b[{}A", lines_ - 1);
  } else {
    out += '\r';
  }
  if (frame.ends_with('\n')) frame.remove_suffix(1);
  // Old text is cleared in front of each new line: behind a full line the clearing would take its
  // last character.
  lines_ = 1;
  for (std::size_t end = 0; (end = frame.find('\n')) != std::string_view::npos; ++lines_) {
    out.append(kClearLineEnd).append(frame.substr(0, end)).append("\r\n");
    frame.remove_prefix(end + 1);
  }
  out.append(kClearBelow).append(frame).append(kWrapOn).append(kEndUpdate);
  // From a frame that was too high, only the part on the screen can be reached again.
  lines_ = std::min(lines_, size.height);
  size_ = size;
  return out;
}

Status LiveScreen::draw(std::string_view frame) {
  return write_all(fd_, compose(frame, terminal_size(fd_)));
}

Status LiveScreen::finish() {
  if (lines_ == 0) return {};
  lines_ = 0;
  return write_all(fd_, fmt::format("{}\r\n{}", kWrapOn, kShowCursor));
}

}  // namespace ingero::cli
