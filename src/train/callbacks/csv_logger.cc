#include <cerrno>
#include <fstream>
#include <set>

#include "core/file_error.h"
#include "core/status.h"
#include "tandem/callbacks.h"
#include "train/model_impl.h"
#include "train/training_state.h"

namespace tandem::callbacks {
namespace {

class CSVLoggerImpl final : public CallbackBase {
 public:
  CSVLoggerImpl(std::filesystem::path path, bool append)
      : path_(std::move(path)), append_(append) {}

  void on_train_begin(Model& model) override {
    writes_ = impl_of(model, "CSVLogger").is_chief();
    if (!writes_) return;
    std::error_code error;
    const auto size = std::filesystem::file_size(path_, error);
    header_ = !(append_ && !error && size > 0);
    columns_ = log_names(model);
    if (!header_ && !columns_.empty()) check_header(header_of(columns_));
    errno = 0;
    out_ = std::ofstream(path_, append_ ? std::ios::app : std::ios::trunc);
    if (!out_) fail_to_write();
  }

  void on_epoch_end(Model&, std::int64_t epoch, const Logs& logs) override {
    if (!writes_) return;
    if (header_ || columns_.empty()) {
      // Callbacks may have added some.
      std::set<std::string> names(columns_.begin(), columns_.end());
      for (const auto& [name, value] : logs) names.insert(name);
      columns_.assign(names.begin(), names.end());
    }
    if (header_) out_ << header_of(columns_) << '\n';
    header_ = false;
    std::string metrics = std::to_string(epoch);
    for (const std::string& name : columns_) {
      const auto found = logs.find(name);
      metrics += found == logs.end() ? ",NA" : fmt::format(",{}", found->second);
    }
    errno = 0;
    out_ << metrics << '\n' << std::flush;
    if (!out_) fail_to_write();
  }

  void on_train_end(Model&) override { out_.close(); }

 private:
  static std::string header_of(const std::vector<std::string>& names) {
    std::string header = "epoch";
    for (const std::string& name : names) header += "," + name;
    return header;
  }
  void check_header(const std::string& expected) const {
    std::string found;
    std::getline(std::ifstream(path_), found);
    if (found != expected)
      fail<InvalidArgumentError>(
          "[CSVLogger] '{}' has the columns {}, and the rows to append have {}: expected another "
          "file",
          path_.string(), found, expected);
  }
  [[noreturn]] void fail_to_write() const {
    throw_file_error(fmt::format("[CSVLogger] cannot write '{}'", path_.string()), errno);
  }

  std::filesystem::path path_;
  bool append_;
  bool header_ = true;
  std::vector<std::string> columns_;  // after the epoch
  bool writes_ = true;                // false on workers other than the chief
  std::ofstream out_;
};

}  // namespace

CSVLogger::CSVLogger(const std::filesystem::path& path, bool append)
    : Callback(std::make_shared<CSVLoggerImpl>(path, append)) {}

}  // namespace tandem::callbacks
