// Device names, complete or partial: /job:J/replica:R/task:T/device:TYPE:ID; and the two ways of
// merging them. Grammar and error messages are TensorFlow's.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tandem {

// A device name in which any component may be missing.
struct DeviceName {
  std::optional<std::string> job;
  std::optional<int> replica;
  std::optional<int> task;
  std::optional<std::string>
      type;  // "CPU", "GPU": legacy forms are upper-cased, /device:cpu is not
  std::optional<int> id;

  // Parses a complete or partial name ("/job:w/device:GPU:*", "/gpu:0", "/", ""). Components may be
  // in any order; later ones overwrite earlier ones; `*` clears one. Empty if it is invalid.
  static std::optional<DeviceName> parse_full(std::string_view text);
  // Parses the local form without a slash, "GPU:0"; type and id are required.
  static std::optional<DeviceName> parse_local(std::string_view text);
  // Parses a user's device string: the local form first, then the full one. The types CPU, GPU and
  // TPU are converted to upper case, as in DeviceSpec. Throws InvalidArgumentError "Could not parse
  // X into a device specification." for invalid strings and for any other type.
  static DeviceName parse(std::string_view text);

  // Omits missing components; a type without an id prints as /device:TYPE:*.
  std::string to_string() const;
  friend bool operator==(const DeviceName&, const DeviceName&) = default;
};

// Whether every component that `less` sets is equal in `more`.
bool is_specification(const DeviceName& less, const DeviceName& more);
// Whether one is a specification of the other. This is stricter than "a complete name exists that
// satisfies both".
bool are_compatible(const DeviceName& a, const DeviceName& b);
// Merges `other` into `target`, from job to id. A conflict in job, replica or task throws
// InvalidArgumentError "Cannot merge devices with incompatible jobs: 'A' and 'B'". A conflict in
// type or id does so, too, unless `soft`: then a type conflict clears type and id, and an id
// conflict clears the id.
void merge(DeviceName& target, const DeviceName& other, bool soft);
// As merge(), but `other` overrides type and id.
void merge_override(DeviceName& target, const DeviceName& other);
// The effective name in nested scopes: components that `inner` sets override those of `outer`.
DeviceName nest(const DeviceName& outer, const DeviceName& inner);

}  // namespace tandem
