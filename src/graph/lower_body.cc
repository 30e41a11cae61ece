#include "graph/lower_body.h"

#include "graph/graph.h"

namespace tandem {
namespace {

LowerOptions options_of(const Body& body, const LowerOptions& around) {
  LowerOptions options{.fetches = body.fetches,
                       .devices = around.devices_of(*body.graph),
                       .devices_of = around.devices_of,
                       .all_updates = body.updates};
  options.resource_of = [outside = around.resource_of](const Node& handle) {
    return handle.outside->resource ? handle.outside->resource : outside(*handle.outside);
  };
  for (const Body::FrameFeed& feed : body.feeds) options.feeds.push_back(feed.tensor);
  return options;
}

void add_devices(const ControlFlow& flow, const LowerOptions& options,
                 std::vector<Device*>& devices) {
  for (const Body& body : flow.bodies) {
    for (Device* device : options.devices_of(*body.graph)) devices.push_back(device);
    for (const auto& node : body.graph->nodes())
      if (node->control) add_devices(*node->control, options, devices);
  }
}

}  // namespace

BodyLowering::BodyLowering(std::shared_ptr<const ControlFlow> flow, const LowerOptions& around)
    : flow_(std::move(flow)) {
  for (const Body& body : flow_->bodies) options_.push_back(options_of(body, around));
}

BodyBlock BodyLowering::lower(std::size_t body, const KnownSizes& sizes, const Frame& frame) const {
  LowerOptions options = options_[body];
  KnownSizes known = sizes;
  options.sizes = &known;
  BodyBlock made;
  for (const Body::FrameFeed& feed : flow_->bodies[body].feeds) {
    options.feed_specs.push_back(frame[feed.from].spec);
    options.feed_devices.push_back(frame[feed.from].device);
    made.feeds.push_back(feed.from);
  }
  made.block = tandem::lower(*flow_->bodies[body].graph, options);
  return made;
}

std::vector<Device*> BodyLowering::devices() const {
  std::vector<Device*> devices;
  add_devices(*flow_, options_.front(), devices);
  return devices;
}

}  // namespace tandem
