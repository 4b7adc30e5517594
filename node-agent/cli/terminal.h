// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"

namespace ingero::cli {

struct TerminalSize {
  std::size_t width = 80;
  std::size_t height = 24;
  bool operator==(const TerminalSize&) const = default;
};

bool is_terminal(int fd);

/// A terminal that is not "dumb", and NO_COLOR (no-color.org) is not set.
bool wants_colour(int fd);

/// Asked anew for each frame, so no handler of SIGWINCH is needed. 80 x 24 where there is no
/// answer.
TerminalSize terminal_size(int fd);

/// Writes all of `text`, also to a pipe whose reader is slow. EPIPE comes back as an error when
/// SIGPIPE is ignored.
Status write_all(int fd, std::string_view text);

/// Redraws a frame in place, in the normal screen: what was on the terminal before stays above it,
/// and the last frame stays when the program ends. Owns the cursor's visibility, not the
/// descriptor.
class LiveScreen {
 public:
  explicit LiveScreen(int fd) : fd_(fd) {}
  LiveScreen(const LiveScreen&) = delete;
  LiveScreen& operator=(const LiveScreen&) = delete;
  ~LiveScreen() { static_cast<void>(finish()); }

  /// Replaces the frame on the screen, in one write. Lines end with a line feed, the last one may
  /// not.
  Status draw(std::string_view frame);
  /// Shows the cursor again, below the last frame. Called twice, it does nothing the second time. A
  /// program that ends by a signal calls it after its loop has noticed the signal.
  Status finish();

  /// What draw() writes; `size` is the terminal's size now.
  std::string compose(std::string_view frame, TerminalSize size);

 private:
  int fd_;
  std::size_t lines_ = 0;  ///< of the frame on the screen; 0: none yet
  TerminalSize size_;
};

}  // namespace ingero::cli
