#include "tandem/dtype.h"
#include "core/joined.h"

#include <array>
#include <ostream>

#include "core/status.h"

namespace tandem {
namespace {

constexpr std::array<std::string_view, 8> kNames = {"float32", "float64", "float16", "bfloat16",
                                                    "int32",   "int64",   "uint8",   "bool"};

}  // namespace

std::string_view name_of(DType dtype) { return kNames.at(static_cast<std::size_t>(dtype)); }

DType dtype_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<DType>(i);
  fail<InvalidArgumentError>("[DType] expected one of {}, got '{}'", joined(kNames, ", "), name);
}

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name_of(dtype); }

}  // namespace tandem
