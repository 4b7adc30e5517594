// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ingero::exporting {

/// Divides a sum that only grows between its own series and the one of "other", so that both only
/// grow and together are the sum, whenever it moves from one to the other.
///
/// `Sums` has add() and subtract(), which stops at zero.
template <typename Sums>
class SplitSum {
  enum class State { fresh, kept, folded };

 public:
  /// It has a series of its own now. Returns that series' value: all that "other" was not given.
  Sums keep(const Sums& total) {
    state_ = State::kept;
    own_ = total;
    own_.subtract(given_);
    return own_;
  }

  /// It is a part of "other" now. Returns what is new to that.
  Sums fold(const Sums& total) {
    state_ = State::folded;
    Sums news = total;
    news.subtract(own_);
    news.subtract(given_);
    given_.add(news);
    return news;
  }

  bool is_folded() const { return state_ == State::folded; }
  bool is_kept() const { return state_ == State::kept; }

 private:
  Sums given_{};  ///< to "other"
  Sums own_{};    ///< what its series showed last
  State state_ = State::fresh;
};

}  // namespace ingero::exporting
