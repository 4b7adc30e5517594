// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "app/pod_recordings.h"
#include "record_test_file.h"

namespace ingero::app {

constexpr std::uint64_t kMiB = 1 << 20;

/// Clocks that a test can set forward.
class TestClock : public ClockSource {
 public:
  std::uint64_t monotonic_ns() const override { return system_clock_source().monotonic_ns(); }
  std::uint64_t boottime_ns() const override { return system_clock_source().boottime_ns(); }
  std::uint64_t realtime_ns() const override {
    return system_clock_source().realtime_ns() + ahead_ns;
  }
  std::uint64_t ahead_ns = 0;
};

/// An agent's recordings in a folder of the test, of containers that the test runs.
class PodRecordingsTest : public testing::Test {
 protected:
  void SetUp() override {
    config_.directory = folder_.file("recordings");
    config_.budget = 100 * kMiB;
    config_.keep_free_percent = 0;
    begin_agent();
  }
  void TearDown() override { recordings_.reset(); }

  void begin_agent() {
    recordings_.reset();
    PodRecordings::Sources sources;
    sources.containers = [this] { return containers_; };
    sources.record_pods = [this](std::set<std::string> uids) {
      streamed_ = std::move(uids);
      return Status{};
    };
    sources.drain = [] { return true; };
    sources.snapshot = [this] { return std::make_shared<const model::Snapshot>(snapshot_); };
    sources.recorder = [] { return record::options_for(""); };
    recordings_ = std::make_unique<PodRecordings>(io_, clock_, std::move(sources), config_);
  }

  void run_container(const std::string& pod, std::uint64_t cgroup,
                     std::optional<policy::RecordingSpec> recording) {
    auto info = std::make_shared<k8s::PodInfo>();
    info->k8s_namespace = "research";
    info->name = pod;
    info->uid = "uid-" + pod;
    CoveredContainer container;
    container.cgroup = static_cast<model::CgroupId>(cgroup);
    container.pod = info;
    container.state = "traced";
    container.decision.emplace();
    if (recording)
      container.decision->recording =
          policy::RecordingWish{*recording, {"deep"}, "deep/" + recording->name};
    std::erase_if(containers_, [&](const auto& row) { return row.cgroup == container.cgroup; });
    containers_.push_back(container);
  }
  static policy::RecordingSpec wish(std::uint64_t mib = 10, const std::string& name = "") {
    return {name, std::chrono::seconds(60), mib * kMiB, 1};
  }

  void look() {
    recordings_->look_soon();
    io_.restart();
    io_.poll();
  }
  /// Until what has ended is on disk.
  void look_until_settled() {
    for (int i = 0; i < 400; ++i) {
      look();
      bool settled = true;
      for (const auto& status : recordings_->status())
        settled = settled && (status.state != "Recording" || status.message.empty());
      if (settled) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    look();
  }
  void pass(std::chrono::nanoseconds time) {
    source_.ahead_ns += static_cast<std::uint64_t>(time.count());
    clock_.resample();
  }
  void call(std::uint64_t cgroup, int calls = 1) {
    call_event event = record::nccl_call();
    event.header.cgroup_id = cgroup;
    for (int i = 0; i < calls; ++i) recordings_->add(event);
  }
  PodRecordingStatus only() const {
    const auto all = recordings_->status();
    EXPECT_EQ(all.size(), 1U);
    return all.empty() ? PodRecordingStatus{} : all[0];
  }
  static std::string rows(const std::string& path) {
    return record::value(path, "SELECT COUNT(*) FROM nccl_events");
  }

  record::TestFolder folder_;
  TestClock source_;
  Clock clock_{source_};
  boost::asio::io_context io_;
  config::RecordingsConfig config_;
  std::vector<CoveredContainer> containers_;
  model::Snapshot snapshot_;
  std::set<std::string> streamed_;
  std::unique_ptr<PodRecordings> recordings_;
};

}  // namespace ingero::app
