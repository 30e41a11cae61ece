// The checksum CRC-32C (Castagnoli).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tandem {

std::uint32_t crc32c(std::string_view bytes);
// The checksum of bytes whose beginning has the checksum `before`, and whose rest is `data`. No
// bytes have the checksum 0. Takes the processor's instructions for it, if it has them.
std::uint32_t add_crc32c(std::uint32_t before, const void* data, std::size_t bytes);

namespace detail {
// The same by tables.
std::uint32_t add_crc32c_by_tables(std::uint32_t before, const void* data, std::size_t bytes);
}  // namespace detail

}  // namespace tandem
