// JSON of untrusted files: headers of safetensors files, and indices.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/json.h"
#include "tandem/dtype.h"
#include "tandem/shape.h"

namespace tandem {

// The largest header or index: the limit of the format's reference implementation.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

// The dtype's name in safetensors files: "F32".
const char* format_name(DType dtype);

// All throw DataLossError for malformed JSON. `what`: the file; `part`: whose value it is, such as
// "its header" or "tensor 'x'".
//
// An object without duplicate keys.
Json parse_object(const std::string& text, const std::string& what, const std::string& part);
// None for a dtype that Tandem does not have.
std::optional<DType> dtype_named(const std::string& name);
// Throws InvalidArgumentError for a dtype that Tandem does not have.
[[noreturn]] void fail_dtype(const std::string& name, const std::string& what,
                             const std::string& part);
DType parse_dtype(const Json& value, const std::string& what, const std::string& part);
// Sizes whose product is countable. Throws InvalidArgumentError for more than kMaxRank axes.
Shape parse_shape(const Json& value, const std::string& what, const std::string& part);
// The value of `key` in an object.
const Json& member(const Json& object, const char* key, const std::string& what,
                   const std::string& part);
// A whole number of at least 0.
std::uint64_t parse_count(const Json& value, const std::string& what, const std::string& part);
std::string parse_string(const Json& value, const std::string& what, const std::string& part);
// Eight hexadecimal digits in lower case.
std::uint32_t parse_crc(const std::string& digits, const std::string& what,
                        const std::string& part);

// `text` as a string in JSON. Throws InvalidArgumentError if it is not UTF-8.
std::string quoted(const std::string& text, const std::string& what);

}  // namespace tandem
