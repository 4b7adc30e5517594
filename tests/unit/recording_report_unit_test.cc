// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/page_output.h"
#include "cli/text_table.h"
#include "record/report.h"
#include "record/time_line.h"
#include "record_test_file.h"

namespace ingero::record {
namespace {

using testing::_;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kMillisecond = 1'000'000;

class ReportTest : public testing::Test {
 protected:
  /// Two ranks on one host: rank 1 comes 2 ms later each time, rank 0 takes 70 ms once.
  std::string make(const std::string& name, const std::string& host, std::vector<int> ranks) {
    RecorderOptions options = options_for(folder_.file(name));
    options.facts.host = host;
    auto recorder = Recorder::create(std::move(options), clock_);
    EXPECT_TRUE(recorder) << recorder.error().message();
    for (std::uint64_t i = 1; i <= 10; ++i) {
      for (const int rank : ranks) {
        call_event call = nccl_call();
        call.header.tid = static_cast<std::uint32_t>(900 + rank);
        call.header.time_ns =
            start_ + i * 100 * kMillisecond + static_cast<std::uint64_t>(rank) * 2 * kMillisecond;
        call.rank = rank;
        call.nranks = 2;
        call.sequence = i;
        call.duration_ns = rank == 0 && i == 5 ? 70 * kMillisecond : kMillisecond;
        call.result = i == 7 ? 3 : 0;
        (*recorder)->add(call);
      }
    }
    TcpEvent tcp;
    tcp.unix_ns =
        static_cast<std::int64_t>(clock_.unix_from_monotonic(start_ + 510 * kMillisecond));
    (*recorder)->add(tcp);
    add_span(**recorder, 520 * kMillisecond, 2 * kMillisecond, false);
    add_span(**recorder, 525 * kMillisecond, 7 * kMillisecond, true);
    add_span(**recorder, 540 * kMillisecond, 28 * kMillisecond, true);
    (*recorder)->add(cuda_call());
    auto snapshot = std::make_shared<model::Snapshot>();
    snapshot->events_lost["call_stream_full"] = 3;
    (*recorder)->update(snapshot);
    (*recorder)->finish("duration over");
    return folder_.file(name);
  }

  /// Of the thread of rank 0.
  void add_span(Recorder& recorder, std::uint64_t at, std::uint64_t duration, bool off_cpu) {
    SchedEvent span;
    span.unix_ns = static_cast<std::int64_t>(clock_.unix_from_monotonic(start_ + at));
    span.duration_ns = duration;
    span.tid = 900;
    span.process = {812, 77};
    span.off_cpu = off_cpu;
    recorder.add(span);
  }

  model::Page page_of(const std::vector<std::string>& files) {
    const auto recording = Recording::open(files);
    EXPECT_TRUE(recording) << recording.error().message();
    auto page = make_report(*recording, {});
    EXPECT_TRUE(page) << page.error().message();
    return page ? *page : model::Page{};
  }

  nlohmann::json time_line(const std::vector<std::string>& files) {
    const auto recording = Recording::open(files);
    std::string text;
    const auto done = export_time_line(*recording,
                                       [&](std::string_view part) {
                                         text += part;
                                         return true;
                                       },
                                       {});
    EXPECT_TRUE(done) << done.error().message();
    return nlohmann::json::parse(text);
  }

  TestFolder folder_;
  Clock clock_;
  std::uint64_t start_ = system_clock_source().monotonic_ns() - 2 * kSecond;
};

const model::PageSection& section(const model::Page& page, std::string_view title) {
  for (const model::PageSection& section : page.sections)
    if (section.title.starts_with(title)) return section;
  ADD_FAILURE() << "no section " << title;
  static const model::PageSection none;
  return none;
}

TEST_F(ReportTest, NamesTheSlowestCallOfEachRankWithItsRetransmits) {
  const auto page = page_of({make("a.db", "host-a", {0, 1})});
  const auto& rows = section(page, "Slowest").table.rows;
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_THAT(rows[0], ElementsAre("00abcdef", "0/2", "ALL_REDUCE", _, "70.0 ms", "7.90 ms", "10",
                                   "1", "2.00 ms"));
  EXPECT_THAT(rows[1],
              ElementsAre("00abcdef", "1/2", "ALL_REDUCE", _, "1.00 ms", "1.00 ms", "10", _, _));
}

TEST_F(ReportTest, TheVerdictNamesTheLateRankAndWhatFailed) {
  const auto page = page_of({make("a.db", "host-a", {0, 1})});
  const auto& lines = section(page, "Verdict").lines;
  EXPECT_THAT(lines, Contains(HasSubstr("Rank 1 of communicator 00abcdef is late, pid 812 in "
                                        "team/trainer-0 cgroup-4242: last in 10 of 10")));
  EXPECT_THAT(lines, Contains(HasSubstr("The slowest collective took 70.0 ms: ALL_REDUCE of rank "
                                        "0/2")));
  EXPECT_THAT(lines, Contains(HasSubstr("1 TCP retransmits in it; 2.00 ms of it without a CPU")));
  EXPECT_THAT(lines, Contains("3 calls failed, see Errors."));
  EXPECT_THAT(lines, Contains(HasSubstr("3 calls or events are missing")));
}

TEST_F(ReportTest, TheVerdictNamesNobodyWhereRanksAreLateByTurns) {
  auto recorder = Recorder::create(options_for(folder_.file("a.db")), clock_);
  ASSERT_TRUE(recorder);
  for (std::uint64_t i = 1; i <= 40; ++i)
    for (const std::uint64_t rank : {0, 1}) {
      call_event call = nccl_call();
      call.header.time_ns = start_ + (i * 10 + (i + rank) % 2 * 5) * kMillisecond;
      call.rank = static_cast<int>(rank);
      call.nranks = 2;
      call.sequence = i;
      (*recorder)->add(call);
    }
  (*recorder)->finish("duration over");
  const auto page = page_of({folder_.file("a.db")});
  const auto& lines = section(page, "Verdict").lines;
  EXPECT_THAT(lines, Contains(HasSubstr("No rank stands out")));
  EXPECT_THAT(lines, Contains("No call failed."));
}

TEST_F(ReportTest, NamesTheNodeWhenThereAreSeveral) {
  const auto page = page_of({make("a.db", "host-a", {0}), make("b.db", "host-b", {1})});
  EXPECT_THAT(section(page, "Slowest").table.rows,
              ElementsAre(Contains("host-a"), Contains("host-b")));
}

TEST_F(ReportTest, NamesTheCollectivesThatWereHindered) {
  const auto page = page_of({make("a.db", "host-a", {0, 1})});
  const auto& network = section(page, "Network and scheduler");
  EXPECT_THAT(network.lines,
              Contains("1 TCP retransmits; 1 collectives have one in their window."));
  EXPECT_THAT(network.lines, Contains("1 waits for a CPU; 1 collectives waited."));
  EXPECT_THAT(network.table.rows, ElementsAre(ElementsAre("00abcdef", "0/2", "ALL_REDUCE", _,
                                                          "70.0 ms", "1", "2.00 ms")));
}

TEST_F(ReportTest, TellsHowLongTheSlowestCallsThreadWasOffTheCpu) {
  const auto page = page_of({make("a.db", "host-a", {0, 1})});
  EXPECT_THAT(section(page, "Off the CPU").table.rows,
              ElementsAre(ElementsAre("00abcdef", "0/2", "ALL_REDUCE", _, "70.0 ms", "35.0 ms",
                                      "50 %", "2", "28.0 ms")));
}

TEST_F(ReportTest, HasNoSectionAboutSpansOffTheCpuWhereNoneWasRecorded) {
  auto recorder = Recorder::create(options_for(folder_.file("a.db")), clock_);
  ASSERT_TRUE(recorder);
  (*recorder)->add(nccl_call());
  (*recorder)->finish("duration over");
  for (const model::PageSection& section : page_of({folder_.file("a.db")}).sections)
    EXPECT_THAT(section.title, Not(HasSubstr("Off the CPU")));
}

TEST_F(ReportTest, ThePlotHasAPointForEachTimeAndAMarkForEachMoment) {
  const auto page = page_of({make("a.db", "host-a", {0, 1})});
  const auto& plots = section(page, "Slowest").plots;
  ASSERT_EQ(plots.size(), 1U);
  ASSERT_EQ(plots[0].series.size(), 2U);
  EXPECT_EQ(*std::max_element(plots[0].series[0].values.begin(), plots[0].series[0].values.end()),
            70.0);
  std::map<std::string, std::uint64_t> sums;
  for (const auto& counts : plots[0].counts)
    for (const std::uint64_t count : counts.values) sums[counts.name] += count;
  EXPECT_EQ(sums, (std::map<std::string, std::uint64_t>{
                      {"TCP retransmits", 1}, {"waits for a CPU", 1}, {"spans off the CPU", 2}}));
}

TEST_F(ReportTest, NamesTheLateRank) {
  const auto page = page_of({make("a.db", "host-a", {0, 1})});
  EXPECT_THAT(section(page, "Late rank").table.rows,
              ElementsAre(ElementsAre("00abcdef", "1", "10", "10", "2.00 ms", "2.00 ms")));
}

TEST_F(ReportTest, CallsOfDifferentOperationsAreNotOneCollective) {
  auto recorder = Recorder::create(options_for(folder_.file("a.db")), clock_);
  ASSERT_TRUE(recorder);
  for (const auto& [rank, symbol] : {std::pair{0, "ncclAllReduce"}, {1, "ncclBroadcast"}}) {
    call_event event = nccl_call(symbol);
    event.rank = rank;
    (*recorder)->add(event);
  }
  (*recorder)->finish("duration over");
  const auto page = page_of({folder_.file("a.db")});
  EXPECT_TRUE(section(page, "Late rank").table.rows.empty());
  EXPECT_THAT(section(page, "Late rank").lines,
              Contains(HasSubstr("1 collectives have one number")));
}

TEST_F(ReportTest, FindsTheLateRankAcrossFiles) {
  const std::string a = make("a.db", "host-a", {0}), b = make("b.db", "host-b", {1});
  EXPECT_TRUE(section(page_of({a}), "Late rank").table.rows.empty());
  EXPECT_THAT(section(page_of({a, b}), "Late rank").table.rows,
              ElementsAre(ElementsAre("00abcdef", "1", "10", "10", "2.00 ms", "2.00 ms")));
}

TEST_F(ReportTest, CountsOperationsCopiesErrorsAndLosses) {
  const auto page = page_of({make("a.db", "host-a", {0, 1})});
  EXPECT_THAT(section(page, "NCCL calls").table.rows,
              ElementsAre(ElementsAre("ALL_REDUCE", "20", "2", "72.0 MiB", "4.45 ms", "70.0 ms")));
  EXPECT_EQ(section(page, "CUDA copies").table.rows[0][0], "h2d");
  EXPECT_THAT(section(page, "Errors").table.rows,
              ElementsAre(ElementsAre("ncclAllReduce", "ncclInternalError", "2"),
                          ElementsAre("cudaMemcpyAsync", "cudaErrorMemoryAllocation", "1")));
  EXPECT_THAT(section(page, "What was not recorded").table.rows,
              ElementsAre(ElementsAre("call_stream_full", "3")));
}

TEST_F(ReportTest, IsReadableAsTextAndAsHtml) {
  const auto page = page_of({make("a.db", "<b>host & \x1b[2J</b>", {0, 1})});
  const std::string text = cli::render_page(page, 0, false);
  EXPECT_THAT(text, HasSubstr("Slowest collective of each rank"));
  EXPECT_THAT(text, HasSubstr("What this page cannot know"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  const std::string html = cli::render_page_html(page);
  EXPECT_THAT(html, HasSubstr("<svg"));
  EXPECT_THAT(html, HasSubstr("&lt;b&gt;host &amp; "));
  EXPECT_THAT(html, Not(HasSubstr("<b>")));
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, Not(HasSubstr("http://")));
  EXPECT_THAT(html, Not(HasSubstr("https://")));
}

TEST_F(ReportTest, NoLineIsWiderThanTheTerminal) {
  const auto page = page_of(
      {make("a.db", "host-a.example.internal", {0}), make("b.db", "host-b.example.internal", {1})});
  for (const std::size_t width : {60U, 80U, 130U}) {
    const std::string text = cli::render_page(page, width, false);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
      EXPECT_LE(cli::display_width(line), width) << line;
    EXPECT_THAT(text, HasSubstr("retransmits"));
  }
}

TEST_F(ReportTest, TheTimeLineHasTracksSlicesInstantsAndFlows) {
  const std::string a = make("a.db", "host-a", {0}), b = make("b.db", "host-b", {1});
  const auto events = time_line({a, b})["traceEvents"];
  std::map<std::string, int> phases;
  std::map<std::string, int> categories;
  for (const auto& event : events) {
    ++phases[event["ph"]];
    if (event.contains("cat")) ++categories[event["cat"]];
  }
  EXPECT_EQ(phases["X"], 10 + 10 + 20 + 2 + 2 * 3);  // threads, communicator's track, copies, waits
  EXPECT_EQ(phases["s"], 10);
  EXPECT_EQ(phases["f"], 10);
  EXPECT_EQ(phases["i"], 2);
  EXPECT_EQ(categories["nccl"], 20);
  EXPECT_EQ(categories["communicator"], 20);
  EXPECT_EQ(categories["cuda"], 2);
  std::set<std::int64_t> pids;
  for (const auto& event : events)
    if (event["ph"] == "X" && event["cat"] == "nccl") pids.insert(event["pid"].get<std::int64_t>());
  EXPECT_EQ(pids, (std::set<std::int64_t>{812, 5'000'812})) << "one process per node";
}

TEST_F(ReportTest, TheTimeLineNamesItsTracks) {
  const std::string a = make("a.db", "host-a", {0}), b = make("b.db", "host-b", {1});
  std::map<std::int64_t, std::string> names;
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> spans;
  const auto line = time_line({a, b});
  for (const auto& event : line["traceEvents"]) {
    if (event["name"] == "process_name") names[event["pid"]] = event["args"]["name"];
    if (event["name"] == "off_cpu") spans[names[event["pid"]]] = {event["tid"], event["dur"]};
  }
  EXPECT_EQ(names[812], "trainer-0 process 812 (host-a)");
  EXPECT_EQ(names[5'000'812], "trainer-0 process 812 (host-b)");
  EXPECT_EQ(names[1'000'000'000], "communicator 00abcdef01234567");
  EXPECT_EQ(names[2'000'000'001], "TCP (host-b)");
  EXPECT_EQ(spans["trainer-0 process 812 (host-b)"],
            (std::pair<std::int64_t, std::int64_t>{5'000'900, 28000}))
      << "threads of two nodes are two";
}

TEST_F(ReportTest, ASliceHasMicrosecondsAndTheCallsFields) {
  const auto line = time_line({make("a.db", "host-a", {0})});
  const auto& events = line["traceEvents"];
  const auto slow = std::find_if(events.begin(), events.end(), [](const auto& event) {
    return event["ph"] == "X" && event["cat"] == "nccl" && event["dur"] == 70000.0;
  });
  ASSERT_NE(slow, events.end());
  EXPECT_EQ((*slow)["name"], "ALL_REDUCE");
  EXPECT_EQ((*slow)["tid"], 900);
  EXPECT_EQ((*slow)["args"]["sequence"], 5);
  EXPECT_EQ((*slow)["args"]["rank"], 0);
  EXPECT_EQ((*slow)["args"]["bytes"], 4 << 20);
}

}  // namespace
}  // namespace ingero::record
