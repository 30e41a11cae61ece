// CSV files by pandas' rules.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "data/files.h"
#include "data/formats.h"
#include "data/pipelines.h"
#include "support/expects.h"
#include "support/tensors.h"
#include "tandem/csv.h"
#include "tandem/errors.h"

namespace tandem::csv_test {
namespace {

using namespace testing;
using data::CsvOptions;
using data::parse_csv;
using data::Table;

const double kNaN = std::nan("");
using Strings = std::vector<std::string>;

Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

Table parse(const std::string& text, const CsvOptions& options = {}) {
  return parse_csv(text, "FILE", options);
}
Strings strings_in(const std::string& text, const CsvOptions& options = {}) {
  return parse(text, options)["a"].strings().to_vector();
}

TEST(Csv, FindsTheTypesOfColumns) {
  const Table table = parse(
      "int,float,bool,text,large\n"
      "1,1.5,True,x,9223372036854775807\n"
      "-2,2,FALSE,1,-9223372036854775808\n"
      " +3 ,-1e-3,true,,0\n");
  EXPECT_EQ(table.rows(), 3);
  EXPECT_EQ(table.names(), (Strings{"int", "float", "bool", "text", "large"}));
  expect_tensor(table["int"].tensor(), int64, {3}, {1, -2, 3});
  expect_tensor(table["float"].tensor(), float64, {3}, {1.5, 2, -1e-3});
  expect_tensor(table["bool"].tensor(), bool_, {3}, {1, 0, 1});
  EXPECT_EQ(table["text"].strings().to_vector(), (Strings{"x", "1", ""}));
  EXPECT_TRUE(table["text"].is_missing(2));
  EXPECT_EQ(table["large"].tensor().to_vector<std::int64_t>()[1], INT64_MIN);
}

TEST(Csv, HasMissingFields) {
  for (const char* missing :
       {"", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
        "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"}) {
    const Table table = parse("a,b,c\n1,2.5,x\n" + std::string(missing) + "," + missing + "," +
                              missing + "\n3,4,y\n");
    expect_tensor(table["a"].tensor(), float64, {3}, {1, kNaN, 3});
    expect_tensor(table["b"].tensor(), float64, {3}, {2.5, kNaN, 4});
    EXPECT_EQ(table["c"].missing(), 1);
    EXPECT_EQ(table.drop_missing().rows(), 2);
    EXPECT_EQ(table.drop_missing()["c"].strings().to_vector(), (Strings{"x", "y"}));
  }
  expect_tensor(parse("a,b\nTrue,1\nNA,2\n")["a"].tensor(), float64, {2}, {1, kNaN});
  expect_tensor(parse("a,b\n,1\n,2\n")["a"].tensor(), float64, {2}, {kNaN, kNaN});
  expect_tensor(parse("a\n1\n-999\n", {.na_values = {"-999"}})["a"].tensor(), float64, {2},
                {1, kNaN});
  EXPECT_EQ(strings_in("a,b\nNA,1\n", {.keep_default_na = false}), (Strings{"NA"}));
}

TEST(Csv, HasQuotes) {
  EXPECT_EQ(strings_in("a,b\n\"x, y\",1\n"), (Strings{"x, y"}));
  EXPECT_EQ(strings_in("a,b\n\"two\nlines\",1\n"), (Strings{"two\nlines"}));
  EXPECT_EQ(strings_in("a,b\n\"say \"\"x\"\"\",1\n"), (Strings{"say \"x\""}));
  EXPECT_EQ(strings_in("a,b\n\"ab\"cd,1\n"), (Strings{"abcd"}));
  EXPECT_EQ(strings_in("a,b\nx\"y,1\n"), (Strings{"x\"y"}));
  EXPECT_EQ(strings_in("a,b\n'x,y',1\n", {.quotechar = '\''}), (Strings{"x,y"}));
  EXPECT_EQ(strings_in("a,b\n\"x\\\"y\",1\nu\\,v,2\n", {.escapechar = '\\'}),
            (Strings{"x\"y", "u,v"}));
  expect_tensor(parse("a,b\n\"1\",2\n\"3\",4")["a"].tensor(), int64, {2}, {1, 3});
  EXPECT_EQ(parse("\"a\",\"b\"\n\"1\",\"2\"").names(), (Strings{"a", "b"}));
}

TEST(Csv, HasEveryEndOfLine) {
  for (const std::string end : {"\n", "\r\n", "\r"})
    for (const bool last : {false, true}) {
      const Table table = parse("a,b" + end + "1,x" + end + end + "2,y" + (last ? end : ""));
      expect_tensor(table["a"].tensor(), int64, {2}, {1, 2});
      EXPECT_EQ(table["b"].strings().to_vector(), (Strings{"x", "y"}));
    }
  EXPECT_EQ(parse("\xef\xbb\xbf"
                  "a\n1\n")
                .names(),
            (Strings{"a"}));
  EXPECT_EQ(parse("a,b\n").rows(), 0);
  EXPECT_EQ(parse("a\n1\n\n2\n", {.skip_blank_lines = false}).rows(), 3);
}

TEST(Csv, HasPandasOptions) {
  EXPECT_EQ(parse("1,2\n3,4\n", {.header = false}).names(), (Strings{"0", "1"}));
  EXPECT_EQ(parse("1,2\n3,4\n", {.names = {"x", "y"}}).rows(), 2);
  const Table renamed = parse("a,b\n1,2\n", {.header = true, .names = {"x", "y"}});
  expect_tensor(renamed["x"].tensor(), int64, {1}, {1});
  EXPECT_EQ(parse("a,a,\n1,2,3\n").names(), (Strings{"a", "a.1", "Unnamed: 2"}));
  EXPECT_EQ(parse("a,b,c\n1,2,3\n", {.usecols = {"c", "a"}}).names(), (Strings{"a", "c"}));
  EXPECT_EQ(parse("a;b\n1;2\n", {.sep = ';'}).names(), (Strings{"a", "b"}));
  EXPECT_EQ(parse("x\ny\na\n1\n", {.skiprows = 2}).names(), (Strings{"a"}));
  EXPECT_EQ(parse("a\n1\n2\n3\n", {.nrows = 2}).rows(), 2);
  EXPECT_EQ(strings_in("a,b\n x, y\n", {.skipinitialspace = true}), (Strings{"x"}));
  expect_tensor(parse("a,b\n1 # x,y\n# no row\n2,3\n", {.comment = '#'})["a"].tensor(), int64, {2},
                {1, 2});
  expect_tensor(
      parse("a;b\n1.234,5;2\n", {.sep = ';', .thousands = '.', .decimal = ','})["a"].tensor(),
      float64, {1}, {1234.5});
  expect_tensor(
      parse("a\nyes\nno\n", {.true_values = {"yes"}, .false_values = {"no"}})["a"].tensor(), bool_,
      {2}, {1, 0});
  const Table typed =
      parse("a,b,c,d\n1,0,007,1\n",
            {.dtype = {{"a", float32}, {"b", bool_}, {"c", "string"}, {"d", "uint8"}}});
  expect_tensor(typed["a"].tensor(), float32, {1}, {1});
  expect_tensor(typed["b"].tensor(), bool_, {1}, {0});
  EXPECT_EQ(typed["c"].strings()[0], "007");
  expect_tensor(typed["d"].tensor(), uint8, {1}, {1});
}

TEST(Csv, HasShortRowsAndInfinity) {
  const Table table = parse("a,b,c\n1\n2,inf\n3,-Infinity,x\n");
  expect_tensor(table["a"].tensor(), int64, {3}, {1, 2, 3});
  const auto b = table["b"].tensor().to_vector<double>();
  EXPECT_TRUE(std::isnan(b[0]));
  EXPECT_EQ(b[1], HUGE_VAL);
  EXPECT_EQ(b[2], -HUGE_VAL);
  EXPECT_EQ(table["c"].missing(), 2);
}

TEST(Csv, ReportsThePlace) {
  expect_error<InvalidArgumentError>([] { parse("a,b\n1,2\n\n\"x\ny\",2,3\n"); },
                                     "[read_csv] FILE, line 4: expected 2 fields, got 3");
  expect_error<DataLossError>(
      [] { parse("a\n1\n\"x\n"); },
      "[read_csv] FILE, line 3: expected the end of a quoted field, got the end of the file");
  expect_error<DataLossError>([] { parse(""); },
                              "[read_csv] FILE: expected a row of the columns' names");
  expect_error<DataLossError>([] { parse("\n\n"); }, "the file has no rows");
  expect_error<InvalidArgumentError>(
      [] {
        parse("a\n1\nx\n", {.dtype = {{"a", int64}}});
      },
      "[read_csv] FILE, line 3, column 'a': expected int64, got 'x'");
  expect_error<InvalidArgumentError>(
      [] {
        parse("a,b\n1,2\n,3\n", {.dtype = {{"a", int32}}});
      },
      "line 3, column 'a': expected int32, got a missing field: the dtypes that have missing "
      "numbers");
  expect_error<InvalidArgumentError>(
      [] {
        parse("a\n256\n", {.dtype = {{"a", uint8}}});
      },
      "the number 256 is out of the range of uint8");
  expect_error<InvalidArgumentError>(
      [] { parse("a\n99999999999999999999\n"); },
      "line 2, column 'a': the number 99999999999999999999 is out of the range of int64");
  EXPECT_EQ(strings_in("a\n99999999999999999999\nx\n"), (Strings{"99999999999999999999", "x"}));
  expect_error<InvalidArgumentError>([] { parse("a\n1e400\n"); },
                                     "the number 1e400 is out of the range");
  expect_tensor(parse("a\n1e-400\n")["a"].tensor(), float64, {1}, {0});
  expect_error<InvalidArgumentError>([] { parse("a\n1\n", {.usecols = {"b"}}); },
                                     "FILE: usecols has 'b', expected one of the columns 'a'");
  expect_error<InvalidArgumentError>(
      [] {
        parse("a\n1\n", {.dtype = {{"b", int64}}});
      },
      "dtype has 'b'");
  expect_error<InvalidArgumentError>([] { parse("a\n", {.sep = '"'}); },
                                     "sep and quotechar are the same character");
  expect_error<InvalidArgumentError>([] { parse("a,b\n", {.header = true, .names = {"x"}}); },
                                     "expected names for 2 columns, got 1");
  expect_error<InvalidArgumentError>([] { data::ColumnType("complex64"); }, "complex64");
  const Table table = parse("a,b\n1,x\n");
  expect_error<NotFoundError>([&] { table["c"]; },
                              "[Table] no column 'c'; the columns are 'a', 'b'");
  expect_error<InvalidArgumentError>([&] { table["b"].tensor(); },
                                     "'b', which has text: codes(vocabulary)");
  expect_error<InvalidArgumentError>([&] { table["a"].strings(); },
                                     "expected a column of text, got 'a', which has int64");
  expect_error<InvalidArgumentError>([&] { table["b"].codes({"y"}); },
                                     "expected strings of a vocabulary of 1, got 'x' in row 0");
  expect_error<InvalidArgumentError>([&] { table.to_tensor(); }, "'b', which has text");
}

TEST(Csv, BecomesTensors) {
  const Table table = parse("a,b,c\n1,2.5,v\n3,4,u\n,5,v\n");
  expect_tensor(table.to_tensor({"b", "a"}), float32, {3, 2}, {2.5, 1, 4, 3, 5, kNaN});
  EXPECT_EQ(table["c"].strings().unique(), (Strings{"u", "v"}));
  expect_tensor(table["c"].codes({"u", "v"}), int64, {3}, {1, 0, 1});
}

// A file of several parts, whose fields have ends of lines and quotes, and the values of its rows.
struct Generated {
  std::string text = "id,value,note\n";
  std::vector<std::int64_t> ids;
  std::vector<std::string> notes;
};
Generated generate(std::size_t bytes, bool odd_quotes) {
  Generated file;
  std::mt19937 random(3);
  for (std::int64_t row = 0; file.text.size() < bytes; ++row) {
    const auto kind = random() % 4;
    std::string note = "note " + std::to_string(row);
    if (kind == 1) note += "\nnext, line";
    if (kind == 2) note += " \"quoted\"";
    std::string field = "\"";
    for (const char c : note) field += c == '"' ? "\"\"" : std::string(1, c);
    field += '"';
    if (odd_quotes && kind == 3) field = note += "\"";  // of which pandas thinks nothing
    file.text += std::to_string(row) + "," + std::to_string(row % 10) + ".5," + field + "\n";
    if (random() % 50 == 0) file.text += "\n\n";
    file.ids.push_back(row);
    file.notes.push_back(note);
  }
  return file;
}

TEST(Csv, ReadsPartsInParallel) {
  for (const bool odd_quotes : {false, true}) {
    const Generated file = generate(std::size_t{3} << 20, odd_quotes);
    const Table table = parse(file.text);
    EXPECT_EQ(table["id"].tensor().to_vector<std::int64_t>(), file.ids);
    EXPECT_EQ(table["note"].strings().to_vector(), file.notes);
    EXPECT_EQ(table["value"].dtype(), float64);
  }
  // A type that only the last part has.
  Generated file = generate(std::size_t{2} << 20, false);
  const Table text = parse(file.text + "x,y,z\n");
  EXPECT_EQ(text["id"].strings()[5], "5");
  EXPECT_EQ(text["id"].strings()[text.rows() - 1], "x");
  const Table missing = parse(file.text + ",,\n");
  EXPECT_EQ(missing["id"].dtype(), float64);
  EXPECT_EQ(missing["id"].missing(), 1);
  expect_error<InvalidArgumentError>([&] { parse(file.text + "1,2,3,4\n"); },
                                     "expected 3 fields, got 4");
}

TEST(Csv, IsReadFromFiles) {
  const TemporaryFolder folder;
  const std::string text = "a,b\n1,x\n2,y\n";
  for (const std::string& path :
       {folder.write("t.csv", bytes_of(text)), folder.write("t.csv.gz", gzip(bytes_of(text)))})
    expect_tensor(data::read_csv(path)["a"].tensor(), int64, {2}, {1, 2});
  expect_error<NotFoundError>([&] { data::read_csv(folder / "no"); },
                              "[read_csv] " + (folder / "no") + ": no such file");
  expect_error<InvalidArgumentError>([&] { data::read_csv(folder.path()); }, "got a directory");
  Bytes cut = gzip(bytes_of(text));
  cut.resize(cut.size() - 9);
  const std::string broken = folder.write("cut.gz", cut);
  expect_error<DataLossError>([&] { data::read_csv(broken); }, "the compressed data is truncated");
}

// --- from_csv ---

std::vector<double> all_values(const data::Dataset& dataset,
                               const data::IterateOptions& options = {}) {
  std::vector<double> values;
  data::Iterator iterator = dataset.iterate(options);
  while (const auto example = iterator.next())
    for (const Tensor& component : *example)
      for (const double value : values_of(component)) values.push_back(value);
  return values;
}

TEST(CsvDataset, HasFeaturesAndALabel) {
  const TemporaryFolder folder;
  const std::string a = folder.write("a.csv", bytes_of("x,kind,y\n1,cat,0.5\n,dog,2\n"));
  const std::string b = folder.write("b.csv", bytes_of("x,kind,y\n3,dog,4\n"));
  const data::CsvDatasetOptions options{.label_name = "kind",
                                        .vocabularies = {{"kind", {"cat", "dog"}}}};
  const data::Dataset dataset = data::from_csv({a, b}, options);
  const data::ElementSpec spec = dataset.element_spec();
  EXPECT_EQ(spec[0].shape, Shape({2}));
  EXPECT_EQ(spec[0].dtype, float32);
  EXPECT_EQ(spec[1].dtype, int64);
  const data::Example batch = *dataset.batch(3).iterate().next();
  expect_tensor(batch[0], float32, {3, 2}, {1, .5, kNaN, 2, 3, 4});
  expect_tensor(batch[1], int64, {3}, {0, 1, 1});
  const data::Dataset columns =
      data::from_csv(b, {.vocabularies = {{"kind", {"dog"}}}, .stack = false});
  const data::Example row = *columns.iterate().next();
  expect_tensor(row[0], int64, Shape::scalar(), {3});
  expect_tensor(row[1], int64, Shape::scalar(), {0});
  expect_tensor(row[2], int64, Shape::scalar(), {4});
  // Each worker reads its files.
  EXPECT_EQ(dataset.batch(2).with_auto_shard(data::AutoShardPolicy::kFile).auto_shard_policy(),
            data::AutoShardPolicy::kFile);
}

TEST(CsvDataset, ResumesShardsAndRepeats) {
  const TemporaryFolder folder;
  std::vector<std::string> files;
  std::vector<double> expected;
  for (const int rows : {5, 0, 3}) {
    std::string text = "x,y\n";
    for (int row = 0; row < rows; ++row) {
      text += std::to_string(row) + "," + std::to_string(10 * row + rows) + "\n";
      expected.push_back(row);
      expected.push_back(10 * row + rows);
    }
    files.push_back(folder.write(std::to_string(rows), bytes_of(text)));
  }
  const data::Dataset dataset = data::from_csv(files, {.label_name = "y"});
  EXPECT_EQ(all_values(dataset), expected);
  std::vector<double> twice = expected;
  twice.insert(twice.end(), expected.begin(), expected.end());
  for (std::int64_t skip = 0; skip <= 16; ++skip)
    EXPECT_EQ(all_values(dataset.repeat(2), {.skip = skip}),
              std::vector<double>(twice.begin() + 2 * skip, twice.end()));
  EXPECT_EQ(all_values(dataset.shard(3, 1)), (std::vector<double>{1, 15, 4, 45, 2, 23}));
  EXPECT_EQ(all_values(dataset.batch(3)).size(), expected.size());  // 3, 3 and 2 rows
  EXPECT_EQ(all_values(dataset.shuffle(4, {.seed = 1}), {.skip = 8}).size(), 0u);
}

TEST(CsvDataset, ReadsBlockByBlock) {
  const Generated file = generate(std::size_t{1} << 20, false);
  const TemporaryFolder folder;
  const std::string path = folder.write("large.csv", bytes_of(file.text));
  const data::Dataset dataset = data::from_csv(path, {.csv = {.usecols = {"id", "value"}}});
  std::int64_t row = 0;
  for (const data::Example& example : dataset) {
    const auto values = example[0].to_vector<float>();
    ASSERT_EQ(values[0], static_cast<float>(row));
    ++row;
  }
  EXPECT_EQ(row, std::ssize(file.ids));
  const auto last = all_values(dataset, {.skip = row - 1});
  EXPECT_EQ(last[0], static_cast<double>(row - 1));
}

TEST(CsvDataset, ReportsThePlace) {
  const TemporaryFolder folder;
  const auto open = [&](const std::string& text, const data::CsvDatasetOptions& options) {
    return data::from_csv(folder.write("f.csv", bytes_of(text)), options);
  };
  expect_error<InvalidArgumentError>(
      [&] { open("a,b\n1,x\n", {}); },
      "column 'b' has text, and no vocabulary: give one in `vocabularies`");
  expect_error<InvalidArgumentError>([&] { open("a,b\n1,2\n", {.label_name = "c"}); },
                                     "label_name has 'c', expected one of the columns 'a', 'b'");
  expect_error<InvalidArgumentError>([&] { open("a\n1\n", {.label_name = "a"}); },
                                     "expected a column besides the label");
  const data::CsvDatasetOptions first{.label_name = "b", .num_rows_for_inference = 1};
  expect_error<InvalidArgumentError>([&] { all_values(open("a,b\n1,2\n2,x\n", first)); },
                                     "line 3, column 'b': expected int64, got 'x'");
  expect_error<InvalidArgumentError>([&] { all_values(open("a,b\n1,2.5\n2,\n", first)); },
                                     "line 3, column 'b': expected a label, got a missing field");
  expect_error<InvalidArgumentError>([&] { all_values(open("a,b\nTrue,2\nq,3\n", first)); },
                                     "line 3, column 'a': expected bool, got 'q'");
  EXPECT_EQ(all_values(open("a,b\nTrue,2\n1,3\n", first)), (std::vector<double>{1, 2, 1, 3}));
  expect_error<InvalidArgumentError>(
      [&] {
        all_values(
            open("a,b\n1,u\n2,w\n", {.label_name = "b", .vocabularies = {{"b", {"u", "v"}}}}));
      },
      "line 3, column 'b': expected a string of its vocabulary of 2, got 'w'");
  const std::string good = folder.write("a.csv", bytes_of("a,b\n1,2\n")),
                    other = folder.write("b.csv", bytes_of("a,c\n1,2\n"));
  expect_error<InvalidArgumentError>(
      [&] {
        all_values(data::from_csv({good, other}));
      },
      "b.csv: expected the columns of the first file, 'a', 'b', got 'a', 'c'");
  expect_error<NotFoundError>([&] { data::from_csv(folder / "no"); }, "[from_csv]");
}

}  // namespace
}  // namespace tandem::csv_test
