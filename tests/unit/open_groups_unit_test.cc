// SPDX-License-Identifier: Apache-2.0
// Calls inside groups, and the end that gives them their span.
#include "record/open_groups.h"

#include <gmock/gmock.h>

#include "recorder_test.h"

namespace ingero::record {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Row = std::vector<std::string>;

call_event in_group(std::uint32_t group, std::uint32_t tid = 815, std::uint64_t cgroup = 4242) {
  call_event event = nccl_call();
  event.group = group;
  event.group_depth = 1;
  event.header.tid = tid;
  event.header.cgroup_id = cgroup;
  return event;
}

TEST(OpenGroups, TheEndHasTheRowsOfItsThreadAndNumber) {
  OpenGroups groups;
  groups.add(in_group(1, 10), 100);
  groups.add(in_group(1, 11), 101);
  groups.add(in_group(1, 10), 102);
  EXPECT_THAT(groups.end(in_group(1, 10)), ElementsAre(100, 102));
  EXPECT_THAT(groups.end(in_group(1, 10)), IsEmpty());
  EXPECT_THAT(groups.end(in_group(1, 11)), ElementsAre(101));
}

TEST(OpenGroups, ALostEndLeavesItsRowsWithoutOne) {
  OpenGroups groups;
  groups.add(in_group(1), 100);
  EXPECT_THAT(groups.end(in_group(2)), IsEmpty()) << "the end of another group";
  groups.add(in_group(3), 101);
  groups.add(in_group(4), 102);
  EXPECT_THAT(groups.end(in_group(4)), ElementsAre(102));
}

TEST(OpenGroups, AContainerThatNeverEndsItsGroupsIsForgottenAndNoOther) {
  OpenGroups groups(100);
  groups.add(in_group(1, 1, 7), 0);
  for (std::uint32_t i = 1; i < 1000; ++i) groups.add(in_group(1, 1000 + i % 30, 8), i);
  EXPECT_THAT(groups.end(in_group(1, 1, 7)), ElementsAre(0));
}

class GroupRows : public RecorderTest {
 protected:
  call_event at(const char* symbol, std::uint64_t time_ns, std::uint64_t duration_ns,
                std::uint8_t depth, std::uint32_t group) {
    call_event event = nccl_call(symbol);
    event.header.time_ns = time_ns;
    event.duration_ns = duration_ns;
    event.group_depth = depth;
    event.group = group;
    return event;
  }
};

TEST_F(GroupRows, ACallInAGroupHasTheSpanToItsOutermostEnd) {
  auto recorder = make();
  recorder->add(at("ncclGroupStart", 1'000'000, 10, 1, 1));
  recorder->add(at("ncclAllReduce", 2'000'000, 100, 1, 1));
  recorder->add(at("ncclGroupStart", 3'000'000, 10, 2, 1));
  recorder->add(at("ncclBroadcast", 4'000'000, 100, 2, 1));
  recorder->add(at("ncclGroupEnd", 5'000'000, 10, 1, 1));
  recorder->add(at("ncclGroupEnd", 6'000'000, 4'000'000, 0, 1));
  recorder->add(at("ncclAllReduce", 11'000'000, 100, 0, 1));
  recorder->finish("interrupted");
  EXPECT_THAT(
      query({path_},
            "SELECT op, group_end_ns - timestamp_ns, span_ns FROM nccl_events "
            "WHERE bytes IS NOT NULL"),
      ElementsAre(Row{"ALL_REDUCE", "8000000", "8000000"}, Row{"BROADCAST", "6000000", "6000000"},
                  Row{"ALL_REDUCE", "NULL", "100"}));
  EXPECT_EQ(value(path_, "SELECT MAX(span_ns) FROM collectives"), "8000000");
}

TEST_F(GroupRows, RetransmitsUntilTheGroupsEndAreInTheWindow) {
  auto recorder = make();
  recorder->add(at("ncclAllReduce", 2'000'000, 100, 1, 1));
  TcpEvent segment;
  segment.unix_ns = 1'700'000'000'000'000'000 + 5'000'000;
  recorder->add(segment);
  recorder->add(at("ncclGroupEnd", 6'000'000, 10, 0, 1));
  recorder->finish("interrupted");
  EXPECT_EQ(value(path_, "SELECT retransmits_in_window FROM collectives"), "1");
}

}  // namespace
}  // namespace ingero::record
