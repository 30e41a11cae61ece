// The elements of files, one file after the other.
#include <algorithm>

#include "core/status.h"
#include "data/description.h"

namespace tandem::data {
namespace {

class FilesStream final : public ItemStream<Example> {
 public:
  FilesStream(std::span<const std::string> files, const ReadFileFn& read, std::uint64_t epoch)
      : files_(files), read_(read), epoch_(epoch) {}

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
    node_ = read_(files_[file_++]).node();
    stream_ = node_->elements(epoch_);
    return true;
  }
  void close() {
    stream_.reset();
    node_.reset();
  }

  std::span<const std::string> files_;
  const ReadFileFn& read_;
  std::uint64_t epoch_;
  std::size_t file_ = 0;  // index of the next file
  NodePtr node_;          // owns the data that the stream reads
  StreamPtr<Example> stream_;
};

class FilesNode final : public DatasetNode {
 public:
  FilesNode(std::vector<std::string> files, ReadFileFn read)
      : DatasetNode(0), files_(std::move(files)), read_(std::move(read)) {}
  StreamPtr<Example> elements(std::uint64_t epoch) const override {
    return std::make_unique<FilesStream>(files_, read_, epoch);
  }
  std::int64_t cardinality() const override { return kUnknownCardinality; }
  Spec spec() const override { return std::nullopt; }
  proto::Stage describe(StageWriter&) const override {
    refuse_stage("from_files", "its function is part of this program");
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
    return std::make_shared<FilesNode>(std::move(mine), read_);
  }

 private:
  std::vector<std::string> files_;
  ReadFileFn read_;
};

}  // namespace

NodePtr files_node(std::vector<std::string> files, ReadFileFn read) {
  if (files.empty())
    fail<InvalidArgumentError>("[from_files] expected at least one file, got none");
  if (!read) fail<InvalidArgumentError>("[from_files] expected a function, got an empty one");
  return std::make_shared<FilesNode>(std::move(files), std::move(read));
}

}  // namespace tandem::data
