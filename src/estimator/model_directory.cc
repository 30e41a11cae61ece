#include "estimator/model_directory.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>

#include "core/atomic_file.h"
#include "core/file_error.h"
#include "core/json.h"
#include "core/status.h"

namespace tandem::estimator {
namespace {

constexpr std::string_view kPrefix = "model-", kSuffix = ".safetensors";

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void make(const std::filesystem::path& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error)
    fail<FailedPreconditionError>("[train_and_evaluate] cannot make the directory '{}': {}",
                                  directory.string(), error.message());
}

[[noreturn]] void damaged(const std::string& what, const std::string& why) {
  fail<DataLossError>("[train_and_evaluate] '{}' is damaged: {}", what, why);
}

std::int64_t step_in(const Json& value, const std::string& what) {
  if (!value.is_count() || value.count() > INT64_MAX)
    damaged(what, "expected the number of a step");
  return value.integer();
}

std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  std::int64_t step = 0;
  const char* const end = name.data() + name.size() - kSuffix.size();
  const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (error != std::errc() || stop != end) return std::nullopt;
  return step;
}

}  // namespace

TrainingRecord parse_record(const std::string& text, const std::string& what) {
  try {
    const Json record = Json::parse(text, "it");
    TrainingRecord result = {.latest = step_in(record.at("latest"), what), .rounds = {}};
    for (const Json& round : record.at("rounds").array())
      result.rounds.push_back(step_in(round, what));
    if (const Json& finished = record.at("finished"); !finished.is_null())
      result.finished = step_in(finished, what);
    return result;
  } catch (const JsonError& error) {
    damaged(what, error.what());
  }
}

Evaluation parse_evaluation(const std::string& text, const std::string& what) {
  try {
    const Json line = Json::parse(text, "it");
    Evaluation result = {.global_step = step_in(line.at("global_step"), what), .metrics = {}};
    for (const auto& [name, value] : line.at("metrics").object())  // null stands for NaN
      result.metrics[name] = value.is_null() ? std::nan("") : value.number();
    return result;
  } catch (const JsonError& error) {
    damaged(what, error.what());
  }
}

ModelDirectory::ModelDirectory(std::filesystem::path path) : path_(std::move(path)) { make(path_); }

std::filesystem::path ModelDirectory::weights(std::int64_t step) const {
  return path_ / fmt::format("{}{}{}", kPrefix, step, kSuffix);
}

TrainingRecord ModelDirectory::read_record() const {
  const std::filesystem::path file = path_ / "checkpoint";
  const std::string text = read(file);
  return text.empty() ? TrainingRecord() : parse_record(text, file.string());
}

void ModelDirectory::write_record(const TrainingRecord& record) const {
  Json fields = {{"finished", nullptr}, {"latest", record.latest}, {"rounds", record.rounds}};
  if (record.finished) fields["finished"] = *record.finished;
  const std::string text = fields.dump();
  AtomicFile file(path_ / "checkpoint");
  file.write(text.data(), text.size());
  file.commit();
}

void ModelDirectory::remove_old_weights(std::size_t keep) const {
  std::vector<std::int64_t> steps;
  for (const auto& entry : std::filesystem::directory_iterator(path_))
    if (const auto step = step_of(entry.path().filename().string())) steps.push_back(*step);
  if (steps.size() <= keep) return;
  std::sort(steps.begin(), steps.end());
  std::error_code ignored;  // the next call tries again
  for (std::size_t i = 0; i + keep < steps.size(); ++i)
    std::filesystem::remove(weights(steps[i]), ignored);
}

std::filesystem::path ModelDirectory::evaluations(const std::string& name) const {
  return path_ / (name.empty() ? "eval" : "eval_" + name) / "evaluations.jsonl";
}

void ModelDirectory::append(const std::string& name, const Evaluation& evaluation) const {
  const std::filesystem::path file = evaluations(name);
  make(file.parent_path());
  errno = 0;
  std::ofstream out(file, std::ios::app);
  out << Json{{"global_step", evaluation.global_step}, {"metrics", evaluation.metrics}}.dump()
      << std::endl;
  if (!out)
    throw_file_error(fmt::format("[train_and_evaluate] cannot write to '{}'", file.string()),
                     errno);
}

std::optional<Evaluation> ModelDirectory::last_evaluation(const std::string& name) const {
  const std::filesystem::path file = evaluations(name);
  const std::string text = read(file);
  // Ignores an incomplete last line, which a crash may leave.
  const std::size_t end = text.rfind('\n');
  if (end == std::string::npos) return std::nullopt;
  const std::size_t before = end == 0 ? std::string::npos : text.rfind('\n', end - 1);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  return parse_evaluation(text.substr(begin, end - begin), file.string());
}

}  // namespace tandem::estimator
