#include "op/attributes.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

#include "core/status.h"

namespace tandem {
namespace {

using Kind = AttrsType::Kind;
using Field = AttrsType::Field;
using SizeVector = std::vector<std::int64_t>;

void* address(const Field& field, const void* attrs) {
  return static_cast<char*>(const_cast<void*>(attrs)) + field.offset;
}

template <class T>
T& get(const Field& field, const void* attrs) {
  return *static_cast<T*>(address(field, attrs));
}

static_assert(std::endian::native == std::endian::little);  // copies the low bytes of integers

std::int64_t integer(const Field& field, const void* attrs) {
  std::int64_t number = 0;
  std::memcpy(&number, address(field, attrs), field.bytes);
  const auto unused = 8 * (sizeof(number) - field.bytes);
  return field.smallest < 0 ? number << unused >> unused : number;
}

AttrField save_field(const Field& field, const void* attrs) {
  AttrField saved{.name = field.name};
  const auto assign = [&](const auto& list) { saved.integers.assign(list.begin(), list.end()); };
  switch (field.kind) {
    case Kind::kSize:
    case Kind::kNumber: saved.integers = {integer(field, attrs)}; break;
    case Kind::kReal: saved.reals = {get<double>(field, attrs)}; break;
    case Kind::kText: assign(get<std::string>(field, attrs)); break;
    case Kind::kDims: assign(get<Dims>(field, attrs)); break;
    case Kind::kSizes: assign(get<SizeVector>(field, attrs)); break;
    case Kind::kShape:
      assign(get<Shape>(field, attrs).words());
      saved.known_shape = get<Shape>(field, attrs).known();
  }
  return saved;
}

void load_field(const Field& field, void* attrs, const AttrField& saved) {
  const SizeVector& integers = saved.integers;
  const auto require = [&](bool suitable) {
    if (!suitable)
      fail<InvalidArgumentError>("attribute '{}' has an invalid stored value", saved.name);
  };
  switch (field.kind) {
    case Kind::kSize:
    case Kind::kNumber:
      require(integers.size() == 1 && integers[0] >= field.smallest &&
              integers[0] <= field.largest);
      std::memcpy(address(field, attrs), integers.data(), field.bytes);
      break;
    case Kind::kReal:
      require(saved.reals.size() == 1);
      get<double>(field, attrs) = saved.reals[0];
      break;
    case Kind::kText:
      get<std::string>(field, attrs).assign(integers.begin(), integers.end());
      break;
    case Kind::kSizes: get<SizeVector>(field, attrs) = integers; break;
    case Kind::kDims:
      require(integers.size() <= kMaxRank);
      get<Dims>(field, attrs) = Dims(std::span(integers));
      break;
    case Kind::kShape:
      require(integers.size() <= kMaxRank);
      get<Shape>(field, attrs) = saved.known_shape ? Shape(std::span(integers)) : Shape();
  }
}

}  // namespace

bool AttrsType::equal(const void* a, const void* b) const {
  return std::ranges::all_of(fields_, [&](const Field& field) {
    switch (field.kind) {
      case Kind::kText: return get<std::string>(field, a) == get<std::string>(field, b);
      case Kind::kSizes: return get<SizeVector>(field, a) == get<SizeVector>(field, b);
      case Kind::kDims: return get<Dims>(field, a) == get<Dims>(field, b);
      case Kind::kShape: return get<Shape>(field, a) == get<Shape>(field, b);
      default: return std::memcmp(address(field, a), address(field, b), field.bytes) == 0;
    }
  });
}

void AttrsType::visit_integers(void* attrs, const std::function<void(std::int64_t&)>& visit) const {
  for (const Field& field : fields_) switch (field.kind) {
      case Kind::kSize: visit(get<std::int64_t>(field, attrs)); break;
      case Kind::kDims: std::ranges::for_each(get<Dims>(field, attrs), visit); break;
      case Kind::kSizes: std::ranges::for_each(get<SizeVector>(field, attrs), visit); break;
      case Kind::kShape: {
        auto& shape = get<Shape>(field, attrs);
        for (int axis = 0; axis < shape.rank(); ++axis) {
          std::int64_t size = shape.word(axis);
          visit(size);
          shape.set(axis, size);
        }
        break;
      }
      default: break;
    }
}

AttrFields AttrsType::save(const void* attrs) const {
  AttrFields saved;
  for (const Field& field : fields_) saved.push_back(save_field(field, attrs));
  return saved;
}

std::shared_ptr<const void> AttrsType::load(const AttrFields& saved) const {
  const std::shared_ptr<void> loaded = make_(nullptr);
  for (const Field& field : fields_) {
    const auto found = std::ranges::find(saved, field.name, &AttrField::name);
    if (found == saved.end()) fail<InvalidArgumentError>("attribute '{}' is missing", field.name);
    load_field(field, loaded.get(), *found);
  }
  if (fields_.size() != saved.size())
    fail<InvalidArgumentError>("expected {} attributes, got {}", fields_.size(), saved.size());
  return loaded;
}

void AttrsType::set(void* attrs, const AttrField& saved) const {
  for (const Field& field : fields_)
    if (saved.name == field.name) load_field(field, attrs, saved);
}

}  // namespace tandem
