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

  std::shared_ptr<const ObjectSnapshot<T>> snapshot() const {
    const std::lock_guard lock(mutex_);
    return snapshot_;
  }

 private:
  using Snapshot = ObjectSnapshot<T>;

  static std::string name_of(const nlohmann::json& object) {
    const std::string name = text_at(object, {"metadata", "name"});
    const std::string k8s_namespace = text_at(object, {"metadata", "namespace"});
    return k8s_namespace.empty() ? name : k8s_namespace + "/" + name;
  }

  void store(Snapshot& next, const nlohmann::json& object) const {
    const std::string name = name_of(object);
    if (name.empty()) return;
    next.objects.erase(name);
    next.errors.erase(name);
    auto parsed = parse_(object);
    if (parsed) next.objects.emplace(name, std::move(*parsed));
    else next.errors.emplace(name, parsed.error());
  }

  void replace(const std::vector<nlohmann::json>& objects) {
    auto next = std::make_shared<Snapshot>();
    next->synced = true;
    for (const auto& object : objects) store(*next, object);
    publish(std::move(next));
  }

  void change(ChangeType type, const nlohmann::json& object) {
    auto next = std::make_shared<Snapshot>(*snapshot());
    if (type == ChangeType::deleted) {
      next->objects.erase(name_of(object));
      next->errors.erase(name_of(object));
    } else {
      store(*next, object);
    }
    publish(std::move(next));
  }

  /// Only the informer's thread publishes.
  void publish(std::shared_ptr<const Snapshot> next) {
    const auto before = snapshot();
    {
      const std::lock_guard lock(mutex_);
      snapshot_ = next;
    }
    if (on_change_ && !is_same(*before, *next)) on_change_();
  }

  bool is_same(const Snapshot& before, const Snapshot& after) const {
    const auto equal = [](const auto& a, const auto& b, const auto& same) {
      return a.size() == b.size() &&
             std::equal(a.begin(), a.end(), b.begin(), [&](const auto& x, const auto& y) {
               return x.first == y.first && same(x.second, y.second);
             });
    };
    return before.synced == after.synced && equal(before.objects, after.objects, same_) &&
           equal(before.errors, after.errors,
                 [](const Error& x, const Error& y) { return x.message() == y.message(); });
  }

  const Parse parse_;
  const std::function<void()> on_change_;
  const Same same_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Snapshot> snapshot_ = std::make_shared<const Snapshot>();
};

}  // namespace ingero::k8s
