#include "data/digit_strokes.h"

#include <array>

namespace tandem::data {
namespace {

constexpr bool kSmooth = true, kStraight = false;

const std::array<std::vector<WritingStyle>, 10>& all_styles() {
  static const std::array<std::vector<WritingStyle>, 10> styles = {{
      // 0: round; narrow; started at the top right with the ends crossing
      {{{kSmooth, {{.50f, .0f}, {.20f, .14f}, {.08f, .50f}, {.20f, .87f}, {.50f, 1.f}, {.80f, .87f}, {.92f, .50f}, {.80f, .14f}, {.50f, .0f}}}},
       {{kSmooth, {{.55f, .0f}, {.34f, .18f}, {.25f, .55f}, {.36f, .92f}, {.52f, 1.f}, {.70f, .82f}, {.77f, .45f}, {.70f, .10f}, {.55f, .0f}}}},
       {{kSmooth, {{.72f, .08f}, {.45f, .02f}, {.18f, .25f}, {.10f, .62f}, {.28f, .96f}, {.60f, .96f}, {.86f, .68f}, {.88f, .32f}, {.68f, .05f}, {.48f, .10f}}}}},
      // 1: a bar; with a flag; with flag and foot
      {{{kStraight, {{.50f, .0f}, {.50f, .5f}, {.50f, 1.f}}}},
       {{kStraight, {{.28f, .22f}, {.54f, .0f}, {.54f, 1.f}}}},
       {{kStraight, {{.30f, .20f}, {.52f, .0f}, {.52f, 1.f}}}, {kStraight, {{.25f, 1.f}, {.78f, 1.f}}}}},
      // 2: with a straight foot; with a loop at the foot; with a wavy foot
      {{{kSmooth, {{.12f, .22f}, {.28f, .04f}, {.58f, .0f}, {.82f, .16f}, {.80f, .42f}, {.50f, .70f}, {.10f, 1.f}}}, {kStraight, {{.10f, 1.f}, {.92f, .98f}}}},
       {{kSmooth, {{.14f, .18f}, {.40f, .0f}, {.76f, .10f}, {.80f, .40f}, {.50f, .78f}, {.22f, .98f}, {.08f, .88f}, {.22f, .76f}, {.50f, .90f}, {.94f, .98f}}}},
       {{kSmooth, {{.10f, .25f}, {.35f, .02f}, {.72f, .06f}, {.80f, .34f}, {.48f, .66f}, {.08f, .98f}}}, {kSmooth, {{.08f, .98f}, {.35f, .90f}, {.62f, 1.f}, {.95f, .90f}}}}},
      // 3: two bows; with a flat top; with a small middle loop
      {{{kSmooth, {{.14f, .12f}, {.45f, .0f}, {.78f, .12f}, {.76f, .36f}, {.42f, .47f}}}, {kSmooth, {{.42f, .47f}, {.78f, .56f}, {.86f, .78f}, {.58f, 1.f}, {.12f, .90f}}}},
       {{kStraight, {{.14f, .02f}, {.82f, .02f}, {.44f, .42f}}}, {kSmooth, {{.44f, .42f}, {.80f, .52f}, {.84f, .80f}, {.52f, 1.f}, {.12f, .90f}}}},
       {{kSmooth, {{.16f, .10f}, {.50f, .0f}, {.80f, .18f}, {.62f, .42f}, {.38f, .50f}, {.44f, .44f}, {.74f, .52f}, {.84f, .76f}, {.54f, 1.f}, {.14f, .92f}}}}},
      // 4: open; closed; with a short bar
      {{{kStraight, {{.24f, .0f}, {.12f, .56f}, {.92f, .56f}}}, {kStraight, {{.72f, .06f}, {.68f, 1.f}}}},
       {{kStraight, {{.68f, 1.f}, {.68f, .0f}, {.06f, .66f}, {.96f, .66f}}}},
       {{kSmooth, {{.18f, .02f}, {.12f, .30f}, {.20f, .50f}, {.50f, .52f}, {.78f, .46f}}}, {kStraight, {{.80f, .0f}, {.76f, .5f}, {.72f, 1.f}}}}},
      // 5: in two movements; like an S; with a round belly
      {{{kStraight, {{.86f, .02f}, {.26f, .02f}, {.20f, .44f}}}, {kSmooth, {{.20f, .44f}, {.52f, .36f}, {.84f, .54f}, {.80f, .86f}, {.48f, 1.f}, {.12f, .90f}}}},
       {{kSmooth, {{.88f, .04f}, {.50f, .02f}, {.26f, .14f}, {.28f, .38f}, {.60f, .46f}, {.82f, .66f}, {.66f, .94f}, {.34f, 1.f}, {.10f, .88f}}}},
       {{kStraight, {{.30f, .04f}, {.24f, .46f}}}, {kSmooth, {{.24f, .46f}, {.58f, .40f}, {.82f, .66f}, {.62f, .96f}, {.16f, .94f}}}, {kStraight, {{.30f, .04f}, {.90f, .0f}}}}},
      // 6: bent stem; straight stem; large loop
      {{{kSmooth, {{.76f, .04f}, {.44f, .10f}, {.18f, .42f}, {.12f, .76f}, {.36f, 1.f}, {.72f, .94f}, {.82f, .70f}, {.58f, .52f}, {.26f, .62f}, {.14f, .80f}}}},
       {{kSmooth, {{.56f, .0f}, {.34f, .34f}, {.18f, .70f}, {.30f, .98f}, {.62f, .98f}, {.76f, .76f}, {.58f, .58f}, {.32f, .66f}, {.18f, .82f}}}},
       {{kSmooth, {{.66f, .0f}, {.30f, .24f}, {.10f, .62f}, {.24f, .96f}, {.60f, 1.f}, {.90f, .76f}, {.74f, .46f}, {.42f, .44f}, {.14f, .66f}}}}},
      // 7: plain; with a bar; with a serif and a bent stem
      {{{kStraight, {{.10f, .04f}, {.88f, .04f}, {.40f, 1.f}}}},
       {{kStraight, {{.12f, .04f}, {.86f, .02f}, {.42f, 1.f}}}, {kStraight, {{.34f, .50f}, {.82f, .48f}}}},
       {{kStraight, {{.10f, .18f}, {.14f, .04f}, {.50f, .08f}, {.90f, .02f}}}, {kSmooth, {{.90f, .02f}, {.64f, .36f}, {.48f, .68f}, {.44f, 1.f}}}}},
      // 8: in one movement; two rings; started at the right
      {{{kSmooth, {{.50f, .48f}, {.20f, .28f}, {.28f, .04f}, {.56f, .0f}, {.78f, .16f}, {.66f, .38f}, {.34f, .56f}, {.16f, .80f}, {.40f, 1.f}, {.72f, .94f}, {.82f, .72f}, {.50f, .48f}}}},
       {{kSmooth, {{.50f, .0f}, {.24f, .10f}, {.24f, .34f}, {.50f, .45f}, {.76f, .34f}, {.76f, .10f}, {.50f, .0f}}}, {kSmooth, {{.50f, .45f}, {.18f, .60f}, {.18f, .88f}, {.50f, 1.f}, {.82f, .88f}, {.82f, .60f}, {.50f, .45f}}}},
       {{kSmooth, {{.82f, .12f}, {.54f, .0f}, {.24f, .12f}, {.32f, .38f}, {.68f, .58f}, {.80f, .82f}, {.52f, 1.f}, {.22f, .84f}, {.34f, .60f}, {.66f, .40f}, {.82f, .12f}}}}},
      // 9: straight stem; bent tail; like a g
      {{{kSmooth, {{.80f, .24f}, {.60f, .02f}, {.28f, .06f}, {.16f, .32f}, {.36f, .54f}, {.66f, .46f}, {.80f, .20f}}}, {kStraight, {{.80f, .20f}, {.76f, .6f}, {.70f, 1.f}}}},
       {{kSmooth, {{.82f, .22f}, {.58f, .0f}, {.26f, .08f}, {.18f, .34f}, {.42f, .52f}, {.72f, .40f}, {.82f, .20f}, {.80f, .58f}, {.60f, .92f}, {.28f, 1.f}}}},
       {{kSmooth, {{.76f, .10f}, {.44f, .0f}, {.20f, .22f}, {.32f, .46f}, {.62f, .42f}, {.78f, .12f}, {.74f, .58f}, {.56f, 1.f}}}}},
  }};
  return styles;
}

}  // namespace

std::span<const WritingStyle> writing_styles(int digit) { return all_styles()[static_cast<std::size_t>(digit)]; }

}  // namespace tandem::data
