// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace ingero::app {

/// From here on the first Ctrl-C is noted, the second one ends the program wherever it is.
void note_ctrl_c();
bool was_interrupted();

constexpr int kInterruptedStatus = 130;

/// A line on the terminal (stderr) while something takes longer than two seconds.
class Patience {
 public:
  Patience();
  /// True: Ctrl-C was pressed. `what` such as "rows so far".
  bool watch(std::uint64_t count, const char* what);
  /// Takes the line away, if it is there: before anything else is written.
  void clear();

 private:
  bool on_terminal_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  double shown_ = 0;  ///< seconds until the line was last written
  bool visible_ = false;
};

}  // namespace ingero::app
