// Device names: /job:J/replica:R/task:T/device:TYPE:ID, whole or in part, and the two ways of
// merging them. The grammar, its oddities and the error texts are TensorFlow's.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tandem {

// A device name of which any component may be missing. A plain value.
struct DeviceName {
  std::optional<std::string> job;
  std::optional<int> replica;
  std::optional<int> task;
  std::optional<std::string>
      type;  // "CPU", "GPU": legacy forms are upper-cased, /device:cpu is not
  std::optional<int> id;

  // Parses a full or partial name ("/job:w/device:GPU:*", "/gpu:0", "/", ""), components in any
  // order, later ones overwriting earlier ones, `*` clearing one. Empty when it does not parse.
  static std::optional<DeviceName> parse_full(std::string_view text);
  // Parses the local form without a slash, "GPU:0" (type and id both needed).
  static std::optional<DeviceName> parse_local(std::string_view text);
  // The form that a user passes: local first, then full; the types CPU, GPU and TPU in any case
  // become upper case (as DeviceSpec does). Throws InvalidArgumentError "Could not parse X into a
  // device specification.", and for any other type, which no soft placement can mean.
  static DeviceName parse(std::string_view text);

  bool fully_specified() const { return job && replica && task && type && id; }
  // Missing components are left out; a type without an id prints as /device:TYPE:*.
  std::string to_string() const;
  friend bool operator==(const DeviceName&, const DeviceName&) = default;
};

// Whether every component that `less` sets is set and equal in `more`.
bool is_specification(const DeviceName& less, const DeviceName& more);
// Whether one is a specification of the other (stricter than "some complete name satisfies both").
bool are_compatible(const DeviceName& a, const DeviceName& b);
// Merges `other` into `target`, job to id. A conflict in job, replica or task is always an
// InvalidArgumentError "Cannot merge devices with incompatible jobs: 'A' and 'B'"; one in type or
// id is too, unless `soft`: then a type conflict clears type AND id, an id conflict the id.
void merge(DeviceName& target, const DeviceName& other, bool soft);
// As merge, but `other` wins conflicts in type and id.
void merge_override(DeviceName& target, const DeviceName& other);
// The inner of two nested scopes over the outer: fields that `inner` sets win, the others are kept.
DeviceName nest(const DeviceName& outer, const DeviceName& inner);
// `text` (local or full) completed from the fully specified `base`. Throws InvalidArgumentError
// "Could not parse basename: ...", "Basename: ... should be fully specified." as TensorFlow does.
std::string canonicalize(std::string_view text, std::string_view base);

}  // namespace tandem
