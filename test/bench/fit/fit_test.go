package fit

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

func abscissas(n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = 1000 + 500*float64(i)
	}
	return x
}

func series(x []float64, of func(x float64, i int) float64) []float64 {
	y := make([]float64, len(x))
	for i := range x {
		y[i] = of(x[i], i)
	}
	return y
}

func TestExactPolynomial(t *testing.T) {
	x := []float64{0, 125, 250, 500, 1000}
	f, err := Polynomial(x, series(x, func(x float64, _ int) float64 { return 7 + 0.5*x + 0.002*x*x }), 2)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{7, 0.5, 0.002} {
		if math.Abs(f.Terms[i].Value-want) > 1e-9 {
			t.Errorf("coefficient %d is %g, want %g", i, f.Terms[i].Value, want)
		}
	}
	if got := f.At(2000); math.Abs(got-9007) > 1e-6 {
		t.Errorf("value at 2000: %g, want 9007", got)
	}
}

// The reference is worked out by hand: y = 1, 3, 2, 5 at x = 1, 2, 3, 4 has the slope 1.1, the residuals
// -0.1, 0.8, -1.3, 0.6, and the slope's error sqrt(2.7/2/5).
func TestStandardError(t *testing.T) {
	f, err := Polynomial([]float64{1, 2, 3, 4}, []float64{1, 3, 2, 5}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if slope := f.Terms[1]; math.Abs(slope.Value-1.1) > 1e-12 || math.Abs(slope.StdErr-math.Sqrt(2.7/2/5)) > 1e-12 {
		t.Errorf("slope %+v, want 1.1 with the error %g", slope, math.Sqrt(2.7/2/5))
	}
	if math.Abs(f.Terms[0].Value) > 1e-12 || f.Freedom != 2 || f.Memory != 0 {
		t.Errorf("%+v, want a line through 0 with 2 degrees of freedom, and residuals that alternate", f)
	}
}

func TestGrowthInNoiseIsSignificant(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	x := abscissas(20)
	noise := func() float64 { return 300_000 * random.NormFloat64() }
	f, err := Polynomial(x, series(x, func(x float64, _ int) float64 { return 2e7 + 500*x + noise() }), 1)
	if err != nil {
		t.Fatal(err)
	}
	if yes, least := f.Significant(1); !yes || least > 200 || math.Abs(f.Terms[1].Value-500) > 150 {
		t.Errorf("slope %+v, significant from %g on: want one of 500 found", f.Terms[1], least)
	}
}

// Of a thousand series of mere noise one or so may look like growth or shrinkage.
func TestNoiseIsNot(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	x := abscissas(12)
	found := 0
	for range 1000 {
		f, err := Polynomial(x, series(x, func(float64, int) float64 { return 1e6 * random.NormFloat64() }), 1)
		if err != nil {
			t.Fatal(err)
		}
		if yes, _ := f.Significant(1); yes {
			found++
		}
	}
	if found > 5 {
		t.Errorf("%d of 1000 series of noise are significant", found)
	}
}

// A saw-tooth has no trend, wherever in it the samples begin and end.
func TestSawToothIsNot(t *testing.T) {
	x := abscissas(20)
	for period := 2; period <= 7; period++ {
		for phase := range period {
			f, err := Polynomial(x, series(x, func(_ float64, i int) float64 { return 1e6 * float64((i+phase)%period) }), 1)
			if err != nil {
				t.Fatal(err)
			}
			if yes, least := f.Significant(1); yes {
				t.Errorf("period %d, phase %d: slope %+v is significant (from %g on)", period, phase, f.Terms[1], least)
			}
		}
	}
}

func TestTooFew(t *testing.T) {
	for name, x := range map[string][]float64{
		"as many as coefficients": {1, 2}, "all at one place": {5, 5, 5, 5},
		"all at zero": {0, 0, 0}, "none": {},
	} {
		if _, err := Polynomial(x, make([]float64, len(x)), 1); !errors.Is(err, ErrFew) {
			t.Errorf("%s: %v, want ErrFew", name, err)
		}
	}
	if _, err := Polynomial([]float64{1, 2, 3, 4, 1}, make([]float64, 4), 1); err == nil {
		t.Error("no error for abscissas without ordinates")
	}
}

// A sample with little weight hardly matters, and one with none not at all.
func TestWeights(t *testing.T) {
	x, y := []float64{1, 2, 3, 4, 5}, []float64{2, 4, 6, 8, 1000}
	f, err := Weighted(x, y, []float64{1, 1, 1, 1, 0}, 1)
	if err != nil || math.Abs(f.Terms[1].Value-2) > 1e-9 {
		t.Errorf("%+v, %v; want the slope 2 of the first four", f, err)
	}
	if _, err := Weighted(x, y, nil, 1); err == nil {
		t.Error("no error for samples without weights")
	}
}
