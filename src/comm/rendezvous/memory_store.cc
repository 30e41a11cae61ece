#include "comm/rendezvous/memory_store.h"

#include "core/status.h"

namespace tandem {

void MemoryStore::set(const std::string& key, std::string_view value) {
  const std::scoped_lock lock(mutex_);
  values_.set(key, value);
  changed_.notify_all();
}

std::string MemoryStore::get(const std::string& key, TimePoint deadline) {
  std::unique_lock lock(mutex_);
  while (true) {
    if (const std::string* value = values_.find(key)) return *value;
    if (changed_.wait_until(lock, deadline) == std::cv_status::timeout &&
        values_.find(key) == nullptr)
      fail<DeadlineExceededError>("{}", not_set_in_time(key));
  }
}

std::int64_t MemoryStore::add(const std::string& key, std::int64_t delta) {
  const std::scoped_lock lock(mutex_);
  const std::int64_t sum = values_.add(key, delta);
  changed_.notify_all();
  return sum;
}

bool MemoryStore::remove(const std::string& key) {
  const std::scoped_lock lock(mutex_);
  return values_.remove(key);
}

}  // namespace tandem
