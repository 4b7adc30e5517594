// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "record_test_file.h"

namespace ingero::record {

class FixedClock : public ClockSource {
 public:
  std::uint64_t monotonic_ns() const override { return 5'000'000; }
  std::uint64_t boottime_ns() const override { return 6'000'000; }
  std::uint64_t realtime_ns() const override { return 1'700'000'000'005'000'000; }
};

inline const FixedClock kSource;

/// A recorder that writes into a folder of the test.
class RecorderTest : public testing::Test {
 protected:
  std::unique_ptr<Recorder> make(RecorderOptions options) {
    auto recorder = Recorder::create(std::move(options), clock_);
    EXPECT_TRUE(recorder) << recorder.error().message();
    return recorder ? std::move(*recorder) : nullptr;
  }
  std::unique_ptr<Recorder> make() { return make(options_for(path_)); }

  TestFolder folder_;
  std::string path_ = folder_.file("a.db");
  Clock clock_{kSource};
};

}  // namespace ingero::record
