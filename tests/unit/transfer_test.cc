#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "transfer/mover.h"

namespace hisparse::transfer {
namespace {

kv::TransferOp op(std::int64_t id) {
  kv::TransferOp one;
  one.id = base::TransferId(id);
  return one;
}

TEST(NullMover, AnswersEveryOpOnceWithAFailure) {
  NullMover mover;
  kv::TransferPlan plan;
  plan.restores = {op(7), op(8)};
  plan.demotions = {op(9)};
  mover.submit(std::move(plan));
  const std::vector<kv::TransferDone> done = mover.drain();
  std::vector<std::int64_t> ids;
  for (const kv::TransferDone& one : done) {
    ids.push_back(one.id.value());
    EXPECT_EQ(one.status.code(), absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_THAT(ids, testing::UnorderedElementsAre(7, 8, 9));
  EXPECT_TRUE(mover.drain().empty());
}

TEST(NullMover, CollectsTheCompletionsOfSeveralPlans) {
  NullMover mover;
  kv::TransferPlan first;
  first.restores = {op(1)};
  kv::TransferPlan second;
  second.demotions = {op(2)};
  mover.submit(std::move(first));
  mover.submit(std::move(second));
  EXPECT_EQ(mover.drain().size(), 2U);
}

TEST(NullMover, HasNothingToSayWithoutOps) {
  NullMover mover;
  mover.submit({});
  EXPECT_TRUE(mover.drain().empty());
}

}  // namespace
}  // namespace hisparse::transfer
