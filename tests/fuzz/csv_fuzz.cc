// Any bytes as a CSV file, with options that the first two bytes choose, result in a table or a
// typed error.
#include "data/formats.h"
#include "tandem/errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  if (size < 2) return 0;
  tandem::data::CsvOptions options;
  const auto bit = [&](int index) { return (bytes[index / 8] >> (index % 8) & 1) != 0; };
  if (bit(0)) options.sep = '\t';
  if (bit(1)) options.header = false;
  if (bit(2)) options.escapechar = '\\';
  if (bit(3)) options.comment = '#';
  if (bit(4)) options.quotechar = bit(5) ? '\0' : '\'';
  if (bit(6)) options.skip_blank_lines = false;
  if (bit(7)) options.doublequote = false;
  if (bit(8)) options.thousands = ',';
  if (bit(9)) options.decimal = ';';
  if (bit(10)) options.skipinitialspace = true;
  if (bit(11)) options.nrows = 3;
  if (bit(12)) options.na_values = {"0", "x"};
  const std::string_view text(reinterpret_cast<const char*>(bytes) + 2, size - 2);
  try {
    const tandem::data::Table table = tandem::data::parse_csv(text, "input", options);
    static_cast<void>(table.drop_missing().rows());
  } catch (const tandem::Error&) {
  }
  return 0;
}
