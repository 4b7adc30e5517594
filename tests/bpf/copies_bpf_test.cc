// SPDX-License-Identifier: Apache-2.0
// How much a copy moves, where its arguments tell that by arrays of any length; and that nothing is made up
// where they do not.
#include <fcntl.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "accounting_test.h"
#include "tests/workload/stubs/cuda_abi.h"
#include "tests/workload/stubs/stub_control.h"

namespace ingero::testing {
namespace {

using Batch = decltype(cudaMemcpyBatchAsync);
using Batch3D = decltype(cudaMemcpy3DBatchAsync);
using Copy3D = decltype(cudaMemcpy3D);

/// An array of sizes in pages of a file that nobody has touched in this process.
class UntouchedSizes {
 public:
  explicit UntouchedSizes(const std::vector<std::size_t>& sizes)
      : bytes_(sizes.size() * sizeof(std::size_t)) {
    std::FILE* file = std::tmpfile();
    std::fwrite(sizes.data(), 1, bytes_, file);
    std::fflush(file);
    address_ = ::mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, ::fileno(file), 0);
    ::madvise(address_, bytes_, MADV_RANDOM);  // no neighbours' pages with the first one
    std::fclose(file);
  }
  ~UntouchedSizes() { ::munmap(address_, bytes_); }
  UntouchedSizes(const UntouchedSizes&) = delete;
  UntouchedSizes& operator=(const UntouchedSizes&) = delete;
  const std::size_t* data() const { return static_cast<const std::size_t*>(address_); }
  std::size_t count() const { return bytes_ / sizeof(std::size_t); }

 private:
  std::size_t bytes_;
  void* address_;
};

/// What the real library does inside the call.
void read_sizes(void* argument) {
  const auto* sizes = static_cast<const UntouchedSizes*>(argument);
  volatile std::size_t sum = 0;
  for (std::size_t i = 0; i < sizes->count(); ++i) sum = sum + sizes->data()[i];
}

class Copies : public Accounting {
 protected:
  int batch(const std::size_t* sizes, std::size_t count) {
    return library_.function<Batch>("cudaMemcpyBatchAsync")(nullptr, nullptr, sizes, count, nullptr,
                                                            nullptr, 0, nullptr);
  }
  int batch_3d(std::vector<cuda_memcpy_3d_operation>& operations) {
    return library_.function<Batch3D>("cudaMemcpy3DBatchAsync")(operations.size(),
                                                                operations.data(), 0, nullptr);
  }
  static cuda_memcpy_3d_operation operation(std::size_t width, std::size_t height,
                                            std::size_t depth) {
    cuda_memcpy_3d_operation made{};
    made.src.type = made.dst.type = CUDA_OPERAND_POINTER;
    made.extent[0] = width;
    made.extent[1] = height;
    made.extent[2] = depth;
    return made;
  }
  std::uint64_t samples(const std::string& operation) {
    const auto sizes = totals(operation).sizes;
    return std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
  }
  std::uint64_t without(const std::string& reason) { return read().unattributed_calls[reason]; }

  StubLibrary library_ = StubLibrary::load(kStubs + "/push/libcudart.so.13");
};

TEST_P(Copies, InBatchesOfAnyLengthHaveTheirBytes) {
  attach(library_, {"cudaMemcpyBatchAsync"});
  std::uint64_t expected = 0, calls = 0;
  for (const std::size_t count : {0u, 1u, 31u, 32u, 33u, 511u, 512u, 513u, 5000u, 1u << 20}) {
    std::vector<std::size_t> sizes(count);
    std::iota(sizes.begin(), sizes.end(), 1);
    expected += std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
    ASSERT_EQ(batch(sizes.data(), count), 0);
    EXPECT_EQ(totals("cudaMemcpyBatchAsync").bytes, expected) << count;
    ++calls;
  }
  EXPECT_EQ(samples("cudaMemcpyBatchAsync"), calls);
  EXPECT_EQ(without("arguments_unreadable"), 0u);
}

TEST_P(Copies, InBatchesLongerThanAnyHonestOneAreCountedWithoutSize) {
  attach(library_, {"cudaMemcpyBatchAsync"});
  const std::size_t size = 4096;
  batch(&size, (1u << 20) + 1);
  batch(&size, ~std::size_t{0});
  EXPECT_EQ(totals("cudaMemcpyBatchAsync").calls, 2u);
  EXPECT_EQ(totals("cudaMemcpyBatchAsync").bytes, 0u);
  EXPECT_EQ(samples("cudaMemcpyBatchAsync"), 0u);
  EXPECT_EQ(without("batch_too_long"), 2u);
}

TEST_P(Copies, WhoseSizesNobodyHasTouchedAreReadWhenTheLibraryHasReadThem) {
  attach(library_, {"cudaMemcpyBatchAsync"});
  auto* set_hook = library_.function<stub_set_hook_fn>("stub_set_hook");
  UntouchedSizes sizes(std::vector<std::size_t>(3000, 512));
  set_hook(read_sizes, &sizes);
  batch(sizes.data(), sizes.count());
  EXPECT_EQ(totals("cudaMemcpyBatchAsync").bytes, 3000u * 512);
  EXPECT_EQ(samples("cudaMemcpyBatchAsync"), 1u);
  EXPECT_EQ(without("arguments_unreadable"), 0u);
}

TEST_P(Copies, WhoseSizesCannotBeReadPutNoSampleAnywhere) {
  attach(library_,
         {"cudaMemcpyBatchAsync", "cudaMemcpy3DBatchAsync", "cudaMemcpy3D", "cudaMemcpy"});
  batch(reinterpret_cast<const std::size_t*>(0x10), 4);
  library_.function<Batch3D>("cudaMemcpy3DBatchAsync")(
      2, reinterpret_cast<cuda_memcpy_3d_operation*>(0x10), 0, nullptr);
  library_.function<Copy3D>("cudaMemcpy3D")(nullptr);
  library_.function<Memcpy>("cudaMemcpy")(nullptr, nullptr, ~std::size_t{0}, COPY_H2D);
  for (const char* operation :
       {"cudaMemcpyBatchAsync", "cudaMemcpy3DBatchAsync", "cudaMemcpy3D", "cudaMemcpy"}) {
    EXPECT_EQ(totals(operation).calls, 1u) << operation;
    EXPECT_EQ(samples(operation), 0u) << operation;
  }
  EXPECT_EQ(without("arguments_unreadable"), 3u);
  EXPECT_EQ(without("forged_size"), 1u);
}

TEST_P(Copies, OfThreeDimensionsInBatchesCountTheirEmptyOperationsAsNothing) {
  attach(library_, {"cudaMemcpy3DBatchAsync"});
  std::vector<cuda_memcpy_3d_operation> operations = {operation(64, 32, 4), operation(0, 32, 4),
                                                      operation(128, 2, 1)};
  ASSERT_EQ(batch_3d(operations), 0);
  EXPECT_EQ(totals("cudaMemcpy3DBatchAsync").bytes, 64u * 32 * 4 + 128 * 2);
  operations.assign(5000, operation(16, 2, 1));
  ASSERT_EQ(batch_3d(operations), 0);
  EXPECT_EQ(totals("cudaMemcpy3DBatchAsync").bytes, 64u * 32 * 4 + 128 * 2 + 5000 * 32);
  EXPECT_EQ(samples("cudaMemcpy3DBatchAsync"), 2u);
}

INSTANTIATE_TEST_SUITE_P(Method, Copies,
                         ::testing::Values(AttachMethod::kSession, AttachMethod::kPerf),
                         [](const auto& method) { return std::string(to_string(method.param)); });

}  // namespace
}  // namespace ingero::testing
