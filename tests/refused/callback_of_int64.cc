// error: write: void on_epoch_end(int epoch, const td::callbacks::Logs& logs) override
#include <tandem/tandem.h>

struct Mine : tandem::callbacks::Callback {
  void on_epoch_end(std::int64_t, const tandem::callbacks::Logs&) {}
};
void f(tandem::Model m, const tandem::data::Dataset& data) { m.fit(data, {.callbacks = {Mine()}}); }
