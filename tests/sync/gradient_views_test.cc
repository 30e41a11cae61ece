#include "sync/gradient_views.h"

#include <gtest/gtest.h>

#include "comm/process/process_communicator.h"
#include "comm/shm/shm_backend.h"
#include "device/device_manager.h"
#include "support/forked_store.h"

namespace tandem::gradient_views_test {
namespace {

class GradientViewsTest : public ::testing::Test {
 protected:
  GradientViewsTest() {
    communicator_ = make_process_communicator(
        make_shm_backend({.store = std::make_shared<ForkedStore>(), .rank = 0, .size = 1}), device_,
        {});
    transport_ = std::make_unique<CommunicatorTransport>(communicator_);
    reducer_ = std::make_unique<Reducer>(
        *transport_, std::vector<GradientInfo>{{2, float32}, {3, float32}}, ReducerOptions{});
    views_.emplace(*reducer_, device_, std::vector<Shape>{{2}, {3, 1}});
  }

  void step(float value) {
    views_->begin_step();
    const std::vector<float> gradient(3, value);
    reducer_->ready(1, const_cast<float*>(gradient.data()));
    reducer_->ready(0, const_cast<float*>(gradient.data()));
    reducer_->finish();
  }

  Device& device_ = *DeviceManager::get().devices(DeviceType::kCpu, "test").front();
  std::shared_ptr<Communicator> communicator_;
  std::unique_ptr<CommunicatorTransport> transport_;
  std::unique_ptr<Reducer> reducer_;
  std::optional<GradientViews> views_;
};

TEST_F(GradientViewsTest, ShareTheMemoryOfTheBucket) {
  step(1.0f);
  const Tensor view = views_->view(1);
  EXPECT_EQ(view.shape(), (Shape{3, 1}));
  EXPECT_EQ(static_cast<const void*>(view.data<float>()), reducer_->result(1).data);
  EXPECT_EQ(view.to_vector<float>(), std::vector<float>(3, 1.0f));
}

TEST_F(GradientViewsTest, TheNextStepUsesTheSameMemory) {
  step(1.0f);
  const void* const memory = views_->view(0).data<float>();
  step(2.0f);
  EXPECT_EQ(static_cast<const void*>(views_->view(0).data<float>()), memory);
  EXPECT_EQ(views_->view(0).to_vector<float>(), std::vector<float>(2, 2.0f));
}

TEST_F(GradientViewsTest, LaterStepsDoNotChangeAHeldView) {
  step(1.0f);
  const Tensor kept = views_->view(0);
  step(2.0f);
  EXPECT_EQ(kept.to_vector<float>(), std::vector<float>(2, 1.0f));
  EXPECT_EQ(views_->view(0).to_vector<float>(), std::vector<float>(2, 2.0f));
}

TEST_F(GradientViewsTest, MayOutliveTheCommunicator) {
  step(1.0f);
  const Tensor kept = views_->view(0);
  views_.reset();
  reducer_.reset();
  transport_.reset();
  communicator_.reset();
  EXPECT_EQ(kept.to_vector<float>(), std::vector<float>(2, 1.0f));
}

}  // namespace
}  // namespace tandem::gradient_views_test
