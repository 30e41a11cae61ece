// The elements of files, one file after the other.
#include <array>

#include "core/status.h"
#include "data/description.h"
#include "data/splitmix.h"
#include "tandem/datasets.h"

namespace tandem::data {
namespace {

// A function of from_files() that every program has.
struct FileFormat {
  using Read = Dataset (*)(const std::string& path);

  std::string_view name;
  Read read;
  std::vector<ComponentSpec> spec;  // empty: it depends on the file
};

const std::array<FileFormat, 2>& formats() {
  static const auto& all = *new const std::array<FileFormat, 2>{
      FileFormat{"cifar10",
                 tandem::datasets::cifar10_examples,
                 {{uint8, {32, 32, 3}}, {int64, Shape::scalar()}}},
      FileFormat{"idx", tandem::datasets::idx_rows, {}}};
  return all;
}

// The format that the function reads; null if it is another function.
const FileFormat* format_of(const ReadFileFn& read) {
  const auto* function = read.target<FileFormat::Read>();
  for (const FileFormat& format : formats())
    if (function && *function == format.read) return &format;
  return nullptr;
}

// The files of all workers, of which a worker reads every `step`-th.
struct FileSource {
  // The place of one of the worker's files. Random transformations of different files, and of
  // other datasets of files in the pipeline, have different random numbers.
  PlaceChange change(std::size_t file) const {
    const std::uint64_t of_all = first + file * step;
    return {
        .offset = 0,
        .source = mix(mix(static_cast<std::uint64_t>(place.offset) + 1, place.source), of_all + 1)};
  }
  PlaceChange place{};
  std::uint64_t first = 0, step = 1;
};

class FilesStream final : public ItemStream<Example> {
 public:
  FilesStream(std::span<const std::string> files, const ReadFileFn& read, const FileSource& source,
              std::uint64_t epoch)
      : files_(files), read_(read), source_(source), epoch_(epoch) {}

  bool next(Example& item) override {
    for (; open(); close())
      if (stream_->next(item)) return true;
    return false;
  }
  std::int64_t skip(std::int64_t count) override {
    std::int64_t skipped = 0;
    for (; open(); close()) {
      skipped += stream_->skip(count - skipped);
      if (skipped == count) break;
    }
    return skipped;
  }

 private:
  bool open() {
    if (stream_) return true;
    if (file_ == files_.size()) return false;
    check_cancelled();
    const std::size_t file = file_++;
    node_ = at_other_places(read_(files_[file]).node(), source_.change(file));
    stream_ = node_->elements(epoch_);
    return true;
  }
  void close() {
    stream_.reset();
    node_.reset();
  }

  std::span<const std::string> files_;
  const ReadFileFn& read_;
  const FileSource& source_;
  std::uint64_t epoch_;
  std::size_t file_ = 0;  // index of the next file
  NodePtr node_;          // owns the data that the stream reads
  StreamPtr<Example> stream_;
};

class FilesNode final : public DatasetNode {
 public:
  FilesNode(std::vector<std::string> files, ReadFileFn read, Spec spec, FileSource source)
      : DatasetNode(0),
        files_(std::move(files)),
        read_(std::move(read)),
        spec_(std::move(spec)),
        source_(source),
        format_(format_of(read_)) {}
  StreamPtr<Example> elements(std::uint64_t epoch) const override {
    return std::make_unique<FilesStream>(files_, read_, source_, epoch);
  }
  // Its function may make random transformations.
  bool is_random() const override { return !format_; }
  NodePtr moved(std::vector<NodePtr>, const PlaceChange& change) const override {
    FileSource source = source_;
    source.place.offset += change.offset;
    if (change.source != 0) source.place.source = mix(source.place.source, change.source);
    return std::make_shared<FilesNode>(files_, read_, spec_, source);
  }
  std::int64_t cardinality() const override { return kUnknownCardinality; }
  Spec spec() const override {
    return format_ && !format_->spec.empty() ? Spec(format_->spec) : spec_;
  }
  proto::Stage describe(StageWriter& writer) const override {
    if (!format_) refuse_stage("from_files", "its function is part of this program");
    proto::Stage stage = writer.stage();
    for (const std::string& file : files_) stage.mutable_files()->add_paths(file);
    stage.mutable_files()->set_format(std::string(format_->name));
    return stage;
  }
  NodePtr shard_files(const FileShard& shard) const override {
    if (!shard.batched) return nullptr;  // no global batch is known
    if (static_cast<std::int64_t>(files_.size()) < shard.workers)
      fail<InvalidArgumentError>(
          "Could not apply FILE based sharding: the dataset only has {} file(s), which is not "
          "enough for the required {} shards/workers. If you are using datasets with distribution "
          "strategy, consider setting the auto sharding policy to either DATA or OFF using "
          "`with_auto_shard(AutoShardPolicy::kData)`. Or, split your input files into a larger "
          "number of small files such that number of files is greater than number of "
          "shards/workers.",
          files_.size(), shard.workers);
    std::vector<std::string> mine;
    for (auto file = static_cast<std::size_t>(shard.worker); file < files_.size();
         file += static_cast<std::size_t>(shard.workers))
      mine.push_back(files_[file]);
    FileSource source = source_;
    source.first = static_cast<std::uint64_t>(shard.worker);
    source.step = static_cast<std::uint64_t>(shard.workers);
    return std::make_shared<FilesNode>(std::move(mine), read_, spec_, source);
  }

 private:
  std::vector<std::string> files_;
  ReadFileFn read_;
  Spec spec_;
  FileSource source_;
  const FileFormat* format_;
};

}  // namespace

NodePtr files_node(std::vector<std::string> files, ReadFileFn read, Spec spec) {
  if (files.empty())
    fail<InvalidArgumentError>("[from_files] expected at least one file, got none");
  if (!read) fail<InvalidArgumentError>("[from_files] expected a function, got an empty one");
  return std::make_shared<FilesNode>(std::move(files), std::move(read), std::move(spec),
                                     FileSource());
}

NodePtr files_node(std::vector<std::string> files, std::string_view format) {
  for (const FileFormat& known : formats())
    if (known.name == format) return files_node(std::move(files), ReadFileFn(known.read));
  fail<InvalidArgumentError>("[from_files] unknown file format '{}'", format);
}

}  // namespace tandem::data
