#include "data/digit_painter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "data/digit_strokes.h"

namespace tandem::data {
namespace {

// How much the writing varies. Lengths without a unit are in sizes of the digit's box.
constexpr float kPointJitter = 0.042f;
constexpr float kRotation = 0.16f;  // radians
constexpr float kShear = 0.25f;
constexpr float kWaveAmplitude = 0.035f;
constexpr float kShift = 1.2f;  // pixels
constexpr float kBox = 20.0f;   // the digit's height in pixels
constexpr int kSpanPoints = 6;  // straight pieces between two points of a curve

using Pixels = std::array<float, kDigitSide * kDigitSide>;

// A random number of mean 0 and standard deviation 1, within +-3.46. The sum of four uniform
// numbers is close enough to a normal distribution, and is the same on every machine.
float approximately_normal(SplitMix& random) {
  double sum = 0.0;
  for (int i = 0; i < 4; ++i) sum += random.uniform();
  return static_cast<float>((sum - 2.0) * 1.7320508);
}
float between(SplitMix& random, float low, float high) {
  return low + (high - low) * static_cast<float>(random.uniform());
}

// A small smooth distortion of the plane: two long waves per direction.
class Wave {
 public:
  explicit Wave(SplitMix& random) {
    for (Term& term : terms_)
      term = {between(random, -4.0f, 4.0f), between(random, -4.0f, 4.0f),
              between(random, 0.0f, 6.2832f), kWaveAmplitude * approximately_normal(random)};
  }
  Point operator()(Point p) const {
    return {p.x + at(terms_[0], p) + at(terms_[1], p), p.y + at(terms_[2], p) + at(terms_[3], p)};
  }

 private:
  struct Term {
    float fx, fy, phase, amplitude;
  };
  static float at(const Term& term, Point p) {
    return term.amplitude * std::sin(term.fx * p.x + term.fy * p.y + term.phase);
  }
  std::array<Term, 4> terms_;
};

// Maps the digit's box to pixels: distorts, shears, rotates and scales.
class Distortion {
 public:
  explicit Distortion(SplitMix& random) : wave_(random) {
    const float angle = kRotation * approximately_normal(random),
                shear = kShear * approximately_normal(random);
    const float width = kBox * between(random, 0.55f, 0.95f),
                height = kBox * between(random, 0.82f, 1.08f);
    const float sine = std::sin(angle), cosine = std::cos(angle);
    xx_ = cosine * width;
    xy_ = -sine * height - cosine * shear * height;
    yx_ = sine * width;
    yy_ = cosine * height - sine * shear * height;
  }
  Point operator()(Point p) const {
    p = wave_(p);
    return {xx_ * p.x + xy_ * p.y, yx_ * p.x + yy_ * p.y};
  }

 private:
  Wave wave_;
  float xx_, xy_, yx_, yy_;
};

// The jittered points of a stroke, joined by straight pieces of a Catmull-Rom curve if the stroke
// is smooth.
std::vector<Point> pieces(const Stroke& stroke, SplitMix& random) {
  std::vector<Point> points;
  for (const Point& p : stroke.points)
    points.push_back({p.x + kPointJitter * approximately_normal(random),
                      p.y + kPointJitter * approximately_normal(random)});
  std::vector<Point> line;
  const auto at = [&](std::ptrdiff_t i) {
    return points[static_cast<std::size_t>(
        std::clamp<std::ptrdiff_t>(i, 0, std::ssize(points) - 1))];
  };
  for (std::ptrdiff_t i = 0; i + 1 < std::ssize(points); ++i) {
    const Point a = at(i - 1), b = at(i), c = at(i + 1), d = at(i + 2);
    for (int k = 0; k < kSpanPoints; ++k) {
      const float t = static_cast<float>(k) / kSpanPoints;
      const auto curve = [&](float p0, float p1, float p2, float p3) {
        if (!stroke.smooth) return p1 + t * (p2 - p1);
        return p1 + 0.5f * t *
                        (p2 - p0 +
                         t * (2.0f * p0 - 5.0f * p1 + 4.0f * p2 - p3 +
                              t * (3.0f * (p1 - p2) + p3 - p0)));
      };
      line.push_back({curve(a.x, b.x, c.x, d.x), curve(a.y, b.y, c.y, d.y)});
    }
  }
  line.push_back(points.back());
  return line;
}

// The shift that centres the interval [low, high] in the image, plus `off`, limited so that the
// interval stays `margin` away from the border. REQUIRES: it fits.
float centring_shift(float low, float high, float off, float margin) {
  const float room = std::max(0.0f, 0.5f * (kDigitSide - (high - low)) - margin);
  return 0.5f * (kDigitSide - low - high) + std::clamp(off, -room, room);
}

// `squared` holds each pixel's squared distance from the nearest stroke. Updates it with the piece
// from a to b. Pixels farther away than `reach` need not be exact.
void update_distances(Pixels& squared, Point a, Point b, float reach) {
  const auto range = [&](float p, float q) {
    const int low = static_cast<int>(std::floor(std::min(p, q) - reach));
    const int high = static_cast<int>(std::ceil(std::max(p, q) + reach));
    return std::pair(std::clamp(low, 0, kDigitSide), std::clamp(high + 1, 0, kDigitSide));
  };
  const auto [left, right] = range(a.x, b.x);
  const auto [top, bottom] = range(a.y, b.y);
  const float dx = b.x - a.x, dy = b.y - a.y;
  const float scale = 1.0f / std::max(dx * dx + dy * dy, 1e-6f);
  for (int y = top; y < bottom; ++y) {
    float* row = squared.data() + y * kDigitSide;
    const float py = static_cast<float>(y) + 0.5f - a.y;
    for (int x = left; x < right; ++x) {
      const float px = static_cast<float>(x) + 0.5f - a.x;
      const float along = std::min(std::max((px * dx + py * dy) * scale, 0.0f), 1.0f);
      const float ex = px - along * dx, ey = py - along * dy;
      row[x] = std::min(row[x], ex * ex + ey * ey);
    }
  }
}

}  // namespace

void paint_digit(int digit, SplitMix random, std::uint8_t* pixels) {
  const auto styles = writing_styles(digit);
  const WritingStyle& style = styles[static_cast<std::size_t>(random.below(styles.size()))];
  const Distortion distort(random);
  const float radius = between(random, 0.7f, 1.7f);    // half the stroke's width, pixels
  const float softness = between(random, 0.5f, 1.1f);  // over which its edge fades, pixels
  const float ink = between(random, 150.0f, 255.0f);
  const float noise = between(random, 0.0f, 24.0f);
  const float reach = radius + softness;

  std::vector<std::vector<Point>> lines;
  Point low = {1e6f, 1e6f}, high = {-1e6f, -1e6f};
  for (const Stroke& stroke : style) {
    for (Point& p : lines.emplace_back(pieces(stroke, random))) {
      p = distort(p);
      low = {std::min(low.x, p.x), std::min(low.y, p.y)};
      high = {std::max(high.x, p.x), std::max(high.y, p.y)};
    }
  }
  const float margin = reach + 0.5f;  // keeps the pixels of the border dark
  const float scale =
      std::min(1.0f, (kDigitSide - 2.0f * margin) / std::max(high.x - low.x, high.y - low.y));
  const float right =
      centring_shift(scale * low.x, scale * high.x, kShift * approximately_normal(random), margin);
  const float down =
      centring_shift(scale * low.y, scale * high.y, kShift * approximately_normal(random), margin);
  Pixels squared;
  squared.fill(1e6f);
  for (std::vector<Point>& line : lines) {
    for (Point& p : line) p = {scale * p.x + right, scale * p.y + down};
    for (std::size_t i = 1; i < line.size(); ++i)
      update_distances(squared, line[i - 1], line[i], reach);
  }
  for (std::size_t i = 0; i < squared.size(); ++i) {
    const float cover = std::clamp((reach - std::sqrt(squared[i])) / (2.0f * softness), 0.0f, 1.0f);
    const float value = cover * ink + noise * (static_cast<float>(random.uniform()) - 0.5f);
    pixels[i] = static_cast<std::uint8_t>(std::clamp(value + 0.5f, 0.0f, 255.0f));
  }
}

}  // namespace tandem::data
