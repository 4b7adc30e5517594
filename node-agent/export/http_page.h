// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "export/http_connection.h"

namespace ingero::exporting {

/// A page that takes time and memory to make: one is made at a time, on another thread, and all who
/// asked before its making began get the same one. Belongs to the io_context's thread.
class HttpPage {
 public:
  /// What the page says. Called from the pool's threads, once at a time.
  using Make = std::function<HttpBody()>;

  HttpPage(boost::asio::io_context& io, boost::asio::thread_pool& pool, Make make);

  void ask(std::shared_ptr<HttpConnection> connection, bool gzip);
  /// It takes no answer any more.
  void forget(const std::shared_ptr<HttpConnection>& connection);

 private:
  struct Asker {
    std::shared_ptr<HttpConnection> connection;
    bool gzip;
  };
  struct Rendering {
    HttpBodyPtr plain;   ///< null: nobody wanted it
    HttpBodyPtr packed;  ///< null: nobody wanted it
    std::chrono::steady_clock::duration took{};
  };

  void begin();
  static Rendering render(const Make& make, bool plain, bool packed);
  void finish(const Rendering& rendering);

  boost::asio::io_context& io_;
  boost::asio::thread_pool& pool_;
  const Make make_;
  boost::asio::steady_timer rest_;
  std::vector<Asker> waiting_;  ///< for the next one
  std::vector<Asker> served_;   ///< with the one that is being made
  bool busy_ = false;           ///< one is being made, or its maker rests
};

}  // namespace ingero::exporting
