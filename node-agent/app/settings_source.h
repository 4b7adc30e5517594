// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <optional>
#include <string>

#include "app/live_config.h"
#include "config/config_file.h"

namespace ingero::app {

/// Follows `--config FILE`: each change of the file is read a moment later and given to the settings.
/// Belongs to the thread of the io_context.
class ConfigFileSource {
 public:
  ConfigFileSource(boost::asio::io_context& io, LiveConfig& settings, std::string path);

  /// An error: the folder cannot be watched. The settings that were read at the start hold then.
  Status start();

 private:
  void wait_for_change();
  void read_soon();
  void read();

  LiveConfig& settings_;
  const std::string path_;
  std::optional<config::ConfigFileWatch> watch_;
  boost::asio::posix::stream_descriptor descriptor_;
  boost::asio::steady_timer timer_;
  std::string last_text_;
};

}  // namespace ingero::app
