// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "k8s/api_object.h"
#include "k8s/informer.h"

namespace ingero::k8s {

/// An immutable state of an ObjectStore. Names are "namespace/name" where there is a namespace.
template <typename T>
struct ObjectSnapshot {
  std::map<std::string, T> objects;
  std::map<std::string, Error>
      errors;           ///< objects that could not be read; they are in no other map
  bool synced = false;  ///< there was a list
};

/// Objects of one kind, parsed, as an informer learns of them. Readers get snapshots. Thread safe.
template <typename T>
class ObjectStore {
 public:
  using Parse = std::function<Result<T>(const nlohmann::json& object)>;
  using Same = std::function<bool(const T& before, const T& after)>;

  /// `on_change` is called from the informer's thread, without a lock, after the first list and
  /// whenever an object came, went, or is not the `same` as before.
  explicit ObjectStore(Parse parse, std::function<void()> on_change = {},
                       Same same = std::equal_to<T>())
      : parse_(std::move(parse)), on_change_(std::move(on_change)), same_(std::move(same)) {}

  /// For an informer, which this must outlive.
  InformerHandlers handlers() {
    return {[this](std::vector<nlohmann::json> objects) { replace(objects); },
            [this](ChangeType type, const nlohmann::json& object) { change(type, object); }};
  }

  /// The same one until something changes.
  std::shared_ptr<const ObjectSnapshot<T>> snapshot() const {
    const std::lock_guard lock(mutex_);
    if (!snapshot_) snapshot_ = std::make_shared<const Snapshot>(now_);
    return snapshot_;
  }

 private:
  using Snapshot = ObjectSnapshot<T>;

  static std::string name_of(const nlohmann::json& object) {
    const std::string name = text_at(object, {"metadata", "name"});
    const std::string k8s_namespace = text_at(object, {"metadata", "namespace"});
    return k8s_namespace.empty() ? name : k8s_namespace + "/" + name;
  }

  static void set(Snapshot& state, const std::string& name, Result<T> parsed) {
    state.objects.erase(name);
    state.errors.erase(name);
    if (parsed) state.objects.emplace(name, std::move(*parsed));
    else state.errors.emplace(name, std::move(parsed.error()));
  }

  void replace(const std::vector<nlohmann::json>& objects) {
    Snapshot next;
    next.synced = true;
    for (const auto& object : objects) {
      const std::string name = name_of(object);
      if (!name.empty()) set(next, name, parse_(object));
    }
    bool same = false;
    {
      const std::lock_guard lock(mutex_);
      same = is_same(now_, next);
      now_ = std::move(next);
      snapshot_.reset();
    }
    if (on_change_ && !same) on_change_();
  }

  /// Costs as much as one object does, however many there are: of a thousand in a row nobody may read
  /// but the last.
  void change(ChangeType type, const nlohmann::json& object) {
    const std::string name = name_of(object);
    if (name.empty()) return;
    if (!(type == ChangeType::deleted ? remove(name) : update(name, parse_(object)))) return;
    if (on_change_) on_change_();
  }

  bool remove(const std::string& name) {
    const std::lock_guard lock(mutex_);
    if (now_.objects.erase(name) + now_.errors.erase(name) == 0) return false;
    snapshot_.reset();
    return true;
  }

  bool update(const std::string& name, Result<T> parsed) {
    const std::lock_guard lock(mutex_);
    const bool same = is_known(name, parsed);
    set(now_, name, std::move(parsed));
    snapshot_.reset();
    return !same;
  }

  bool is_known(const std::string& name, const Result<T>& parsed) const {
    if (parsed) {
      const auto known = now_.objects.find(name);
      return known != now_.objects.end() && same_(known->second, *parsed);
    }
    const auto known = now_.errors.find(name);
    return known != now_.errors.end() && is_same_error(known->second, parsed.error());
  }

  static bool is_same_error(const Error& a, const Error& b) { return a.message() == b.message(); }

  bool is_same(const Snapshot& before, const Snapshot& after) const {
    const auto equal = [](const auto& a, const auto& b, const auto& same) {
      return a.size() == b.size() &&
             std::equal(a.begin(), a.end(), b.begin(), [&](const auto& x, const auto& y) {
               return x.first == y.first && same(x.second, y.second);
             });
    };
    return before.synced == after.synced && equal(before.objects, after.objects, same_) &&
           equal(before.errors, after.errors, is_same_error);
  }

  const Parse parse_;
  const std::function<void()> on_change_;
  const Same same_;
  mutable std::mutex mutex_;
  Snapshot now_;                                      // under mutex_
  mutable std::shared_ptr<const Snapshot> snapshot_;  // of now_; null: nobody has asked since
};

}  // namespace ingero::k8s
