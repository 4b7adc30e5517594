// SPDX-License-Identifier: Apache-2.0
// Who holds which socket, as the kernel's own table of files says it.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "attach/bpf_object.h"
#include "base/unique_fd.h"
#include "discover/mapping_scanner.h"
#include "discover/socket_scanner.h"

namespace ingero::discover {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

std::uint64_t inode_of(int fd) {
  struct stat status {};
  EXPECT_EQ(::fstat(fd, &status), 0);
  return status.st_ino;
}

class Sockets : public ::testing::Test {
 protected:
  void SetUp() override { load(true); }

  void load(bool find_sockets) {
    attach::BpfOptions options;
    options.method = model::AttachMethod::kPerf;
    options.find_sockets = find_sockets;
    auto bpf = attach::BpfObject::create(options);
    ASSERT_TRUE(bpf) << bpf.error().message();
    bpf_ = std::move(*bpf);
  }

  /// Processes that hold the socket, each once.
  std::vector<std::uint32_t> holders(std::uint64_t inode) {
    std::set<std::uint32_t> found;
    const auto all = SocketScanner(bpf_->handles()).scan();
    if (!all) ADD_FAILURE() << all.error().message();
    else
      for (const SocketHolder& holder : *all)
        if (holder.inode == inode) found.insert(holder.process.tgid);
    return {found.begin(), found.end()};
  }

  const std::uint32_t self_ = static_cast<std::uint32_t>(::getpid());
  std::unique_ptr<attach::BpfObject> bpf_;
};

TEST_F(Sockets, OfEachFamilyHaveTheProcessThatHoldsThemUntilItClosesThem) {
  for (const int family : {AF_INET, AF_INET6}) {
    UniqueFd socket(::socket(family, SOCK_STREAM, 0));
    ASSERT_TRUE(socket);
    const std::uint64_t inode = inode_of(socket.get());
    EXPECT_THAT(holders(inode), ElementsAre(self_));
    socket.reset();
    EXPECT_THAT(holders(inode), IsEmpty());
  }
}

TEST_F(Sockets, TheProcessIsThatOfTheOtherIterator) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM, 0));
  const auto mappings = MappingScanner(bpf_->handles()).scan_process(self_);
  ASSERT_TRUE(mappings && !mappings->empty());
  const auto all = SocketScanner(bpf_->handles()).scan();
  ASSERT_TRUE(all) << all.error().message();
  const auto mine = std::find_if(all->begin(), all->end(), [&](const SocketHolder& holder) {
    return holder.inode == inode_of(socket.get());
  });
  ASSERT_NE(mine, all->end());
  EXPECT_EQ(mine->process, mappings->front().process) << "number and start time";
}

TEST_F(Sockets, SharedByAForkHaveBothProcesses) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM, 0));
  const std::uint64_t inode = inode_of(socket.get());
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  EXPECT_THAT(holders(inode), UnorderedElementsAre(self_, static_cast<std::uint32_t>(child)));
  socket.reset();
  EXPECT_THAT(holders(inode), ElementsAre(static_cast<std::uint32_t>(child)));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_THAT(holders(inode), IsEmpty());
}

TEST_F(Sockets, OfAThreadWithFilesOfItsOwnAreItsProcesss) {
  std::uint64_t inode = 0;
  std::vector<std::uint32_t> found;
  std::thread([&] {
    ASSERT_EQ(::unshare(CLONE_FILES), 0);
    const UniqueFd socket(::socket(AF_INET, SOCK_STREAM, 0));
    inode = inode_of(socket.get());
    found = holders(inode);
  }).join();
  EXPECT_THAT(found, ElementsAre(self_));
}

TEST_F(Sockets, ThatAreNotTcpAreLeftOut) {
  const UniqueFd datagrams(::socket(AF_INET, SOCK_DGRAM, 0));
  const UniqueFd local(::socket(AF_UNIX, SOCK_STREAM, 0));
  EXPECT_THAT(holders(inode_of(datagrams.get())), IsEmpty());
  EXPECT_THAT(holders(inode_of(local.get())), IsEmpty());
}

TEST_F(Sockets, AreNotLookedAtWhereNobodyRecords) {
  load(false);
  const auto all = SocketScanner(bpf_->handles()).scan();
  ASSERT_FALSE(all);
  EXPECT_EQ(all.error().object, "iter/task_file");
}

}  // namespace
}  // namespace ingero::discover
