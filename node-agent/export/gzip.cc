// SPDX-License-Identifier: Apache-2.0
#include "export/gzip.h"

#include <zlib.h>

#include <cerrno>

namespace ingero::exporting {
namespace {

constexpr int kGzipFormat = 15 + 16;  // the largest window, and gzip's header, says zlib.h
constexpr int kMemoryLevel = 8;

}  // namespace

Result<std::string> gzip(std::string_view text) {
  z_stream stream{};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipFormat, kMemoryLevel,
                   Z_DEFAULT_STRATEGY) != Z_OK)
    return fail(Error::from_errno(ENOMEM, "compress page", ""));
  std::string packed(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  const int end = deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  if (end != Z_STREAM_END) return fail(Error{"compress page", "", "larger than 4 GiB", "", 0});
  packed.shrink_to_fit();
  return packed;
}

}  // namespace ingero::exporting
