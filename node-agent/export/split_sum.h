// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ingero::exporting {

/// Divides a sum that only grows between its own series and the one of "other", so that both only
/// grow and together are the sum, whenever it moves from one to the other.
///
/// `Sums` has add() and subtract(), which stops at zero.
template <typename Sums>
class SplitSum {
 public:
  /// It has a series of its own now. Returns that series' value: all that "other" was not given.
  Sums keep(const Sums& total) {
    kept_ = true;
    folded_ = false;
    Sums own = total;
    own.subtract(given_);
    return own;
  }

  /// It is a part of "other" now. Returns what is new to that.
  Sums fold(const Sums& total) {
    if (!folded_) own_ = kept_ ? keep(total) : Sums{};
    folded_ = true;
    Sums news = total;
    news.subtract(own_);
    news.subtract(given_);
    given_.add(news);
    return news;
  }

  bool is_folded() const { return folded_; }
  bool is_kept() const { return kept_ && !folded_; }

 private:
  Sums given_{};  ///< to "other"
  Sums own_{};    ///< of its series, while it has none
  bool kept_ = false;
  bool folded_ = false;
};

}  // namespace ingero::exporting
