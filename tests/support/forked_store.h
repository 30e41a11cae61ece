// A store that forked processes share.
#pragma once

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/store.h"
#include "core/status.h"
#include "support/waiting.h"

namespace tandem {

// A key/value map in memory that forked processes share.
class ForkedStore final : public Store {
 public:
  void set(const std::string& key, std::string_view value) override {
    const Lock lock(*table_);
    put(find(key), key, value);
  }
  std::string get(const std::string& key, TimePoint deadline) override {
    for (;;) {
      {
        const Lock lock(*table_);
        if (const Entry* entry = find(key)) return {entry->value, entry->length};
      }
      if (std::chrono::steady_clock::now() > deadline)
        fail<DeadlineExceededError>("[store] key '{}' is not there", key);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  std::int64_t add(const std::string& key, std::int64_t delta) override {
    const Lock lock(*table_);
    Entry* entry = find(key);
    const std::int64_t sum = (entry ? std::stoll(std::string(entry->value, entry->length)) : 0);
    put(entry, key, std::to_string(sum + delta));
    return sum + delta;
  }
  void remove(const std::string& key) override {
    const Lock lock(*table_);
    if (Entry* entry = find(key)) entry->key[0] = 0;
  }
  // The existing entries.
  std::vector<std::string> keys() const {
    const Lock lock(*table_);
    std::vector<std::string> result;
    for (const Entry& entry : table_->entries)
      if (entry.key[0] != 0) result.emplace_back(entry.key);
    return result;
  }

 private:
  struct Entry {
    char key[256];
    std::size_t length;
    char value[2048];
  };
  struct Table {
    std::atomic<bool> locked{false};
    Entry entries[256];
  };
  struct Lock {
    explicit Lock(Table& of) : table(of) {
      while (table.locked.exchange(true)) std::this_thread::yield();
    }
    ~Lock() { table.locked = false; }
    Table& table;
  };
  Entry* find(std::string_view key) const {
    for (Entry& entry : table_->entries)
      if (key == entry.key) return &entry;
    return nullptr;
  }
  void put(Entry* entry, const std::string& key, std::string_view value) {
    if (!entry) entry = find("");
    if (!entry || key.size() >= sizeof(entry->key) || value.size() > sizeof(entry->value))
      throw InternalError("the test's store is too small");
    std::memcpy(entry->key, key.c_str(), key.size() + 1);
    std::memcpy(entry->value, value.data(), value.size());
    entry->length = value.size();
  }

  std::shared_ptr<Table> table_ = testing::shared_with_forks<Table>();
};

}  // namespace tandem
