#include "op/attribute_fields.h"

#include "core/status.h"

namespace tandem::detail {

void unsuitable_field(const AttrField& field) {
  fail<InvalidArgumentError>("attribute '{}' has an invalid stored value", field.name);
}

const AttrField& field_named(const AttrFields& fields, std::string_view name) {
  for (const AttrField& field : fields)
    if (field.name == name) return field;
  fail<InvalidArgumentError>("attribute '{}' is missing", name);
}

void check_count(std::size_t expected, std::size_t got) {
  if (expected != got) fail<InvalidArgumentError>("expected {} attributes, got {}", expected, got);
}

}  // namespace tandem::detail
