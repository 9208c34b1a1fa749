// Package fit fits polynomials to samples by least squares, and says how sure it is of each coefficient.
//
// Reads, writes, owns: nothing but its arguments.
//
// Guarantees: no coefficient comes without its standard error; samples that determine nothing are an error.
package fit

import (
	"errors"
	"fmt"
	"math"
)

// ErrFew is returned for samples that are too few, or whose abscissas don't differ enough, to fit the polynomial.
var ErrFew = errors.New("too few different samples")

// Term is a coefficient with its standard error.
type Term struct {
	Value  float64 `json:"value"`
	StdErr float64 `json:"stdErr"`
}

// Fit is a fitted polynomial.
type Fit struct {
	// Terms are the coefficients of x^0, x^1 and so on.
	Terms []Term `json:"terms"`
	// Freedom is the number of samples beyond the coefficients.
	Freedom int `json:"freedom"`
	// Scatter is the standard deviation of the samples around the polynomial, of one with the weight 1.
	Scatter float64 `json:"scatter"`
	// Memory is how much of a residual is in the next one: the correlation of neighbours, at least 0.
	Memory float64 `json:"memory"`
}

// Polynomial fits y = t0 + t1 x + ... + tn x^n, with samples in the order in which they were taken. At least one
// sample more than there are coefficients is needed.
func Polynomial(x, y []float64, degree int) (Fit, error) {
	weights := make([]float64, len(x))
	for i := range weights {
		weights[i] = 1
	}
	return Weighted(x, y, weights, degree)
}

// Weighted is Polynomial for samples that aren't equally exact: a sample's weight is 1 over the square of its error,
// in any unit.
func Weighted(x, y, weights []float64, degree int) (Fit, error) {
	terms := degree + 1
	if len(x) != len(y) || len(x) != len(weights) {
		return Fit{}, fmt.Errorf("fit: %d abscissas for %d ordinates", len(x), len(y))
	}
	if len(x) <= terms {
		return Fit{}, fmt.Errorf("fit %d coefficients to %d samples: %w", terms, len(x), ErrFew)
	}
	// Powers of numbers around 1 keep the equations well conditioned.
	scale := 0.0
	for _, v := range x {
		scale = max(scale, math.Abs(v))
	}
	if scale == 0 {
		return Fit{}, fmt.Errorf("fit %d coefficients: %w: all are at 0", terms, ErrFew)
	}
	normal, right := make([][]float64, terms), make([]float64, terms)
	for row := range normal {
		normal[row] = make([]float64, terms)
	}
	for i := range x {
		powers := powersOf(x[i]/scale, terms)
		for row := range normal {
			right[row] += weights[i] * powers[row] * y[i]
			for column := range normal {
				normal[row][column] += weights[i] * powers[row] * powers[column]
			}
		}
	}
	inverse, err := invert(normal)
	if err != nil {
		return Fit{}, fmt.Errorf("fit %d coefficients: %w", terms, err)
	}
	scaled := multiply(inverse, right)
	f := Fit{Freedom: len(x) - terms}
	residuals := make([]float64, len(x))
	squares := 0.0
	for i := range x {
		residuals[i] = math.Sqrt(weights[i]) * (y[i] - dot(powersOf(x[i]/scale, terms), scaled))
		squares += residuals[i] * residuals[i]
	}
	f.Scatter, f.Memory = math.Sqrt(squares/float64(f.Freedom)), memory(residuals, squares)
	unit := 1.0
	for i := range scaled {
		f.Terms = append(f.Terms, Term{Value: scaled[i] / unit, StdErr: f.Scatter * math.Sqrt(inverse[i][i]) / unit})
		unit *= scale
	}
	return f, nil
}

// At is the polynomial's value.
func (f Fit) At(x float64) float64 {
	value := 0.0
	for i, power := range powersOf(x, len(f.Terms)) {
		value += power * f.Terms[i].Value
	}
	return value
}

// Significant reports whether a coefficient that large comes about by chance in fewer than one of a thousand fits, and
// what the smallest such coefficient is. Residuals that hang together, as those of a saw-tooth, count for fewer samples
// than they are.
func (f Fit) Significant(term int) (yes bool, least float64) {
	independent := (1 - f.Memory) / (1 + f.Memory)
	freedom := max(1, int(float64(f.Freedom)*independent))
	least = student(thousandth, freedom) * f.Terms[term].StdErr / math.Sqrt(independent)
	return math.Abs(f.Terms[term].Value) > least, least
}

// Likely is Significant for one of twenty fits, and samples that aren't in the order of time.
func (f Fit) Likely(term int) (yes bool, least float64) {
	least = student(twentieth, f.Freedom) * f.Terms[term].StdErr
	return math.Abs(f.Terms[term].Value) > least, least
}

// maxMemory keeps a few samples that hang together from counting for none.
const maxMemory = 0.9

// memory is the correlation of neighbouring residuals, within what Fit.Memory may be.
func memory(residuals []float64, squares float64) float64 {
	if squares == 0 {
		return 0
	}
	sum := 0.0
	for i := 1; i < len(residuals); i++ {
		sum += residuals[i] * residuals[i-1]
	}
	return min(max(0, sum/squares), maxMemory)
}

// quantile is one of Student's distribution: by the degrees of freedom from 1 on, and the limit for many.
type quantile struct {
	by    []float64
	limit float64
}

// Both are two-sided: what is beyond them in either direction has this probability.
var (
	thousandth = quantile{limit: 3.2905, by: []float64{
		636.62, 31.599, 12.924, 8.610, 6.869, 5.959, 5.408, 5.041, 4.781, 4.587, 4.437, 4.318, 4.221, 4.140, 4.073,
		4.015, 3.965, 3.922, 3.883, 3.850, 3.819, 3.792, 3.768, 3.745, 3.725, 3.707, 3.690, 3.674, 3.659, 3.646,
	}}
	twentieth = quantile{limit: 1.9600, by: []float64{
		12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
	}}
)

func student(q quantile, freedom int) float64 {
	if freedom <= len(q.by) {
		return q.by[freedom-1]
	}
	return q.limit + (q.limit*q.limit*q.limit+q.limit)/(4*float64(freedom))
}

func powersOf(x float64, terms int) []float64 {
	powers := make([]float64, terms)
	power := 1.0
	for i := range powers {
		powers[i] = power
		power *= x
	}
	return powers
}

func dot(a, b []float64) float64 {
	sum := 0.0
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

func multiply(m [][]float64, v []float64) []float64 {
	product := make([]float64, len(m))
	for i := range m {
		product[i] = dot(m[i], v)
	}
	return product
}

// invert is Gauss and Jordan's way, with pivots. It spends m.
func invert(m [][]float64) ([][]float64, error) {
	const singular = 1e-12
	n := len(m)
	inverse := make([][]float64, n)
	for i := range inverse {
		inverse[i] = make([]float64, n)
		inverse[i][i] = 1
	}
	for column := range n {
		pivot := column
		for row := column; row < n; row++ {
			if math.Abs(m[row][column]) > math.Abs(m[pivot][column]) {
				pivot = row
			}
		}
		if math.Abs(m[pivot][column]) < singular {
			return nil, ErrFew
		}
		m[column], m[pivot] = m[pivot], m[column]
		inverse[column], inverse[pivot] = inverse[pivot], inverse[column]
		divide(m[column], inverse[column], m[column][column])
		for row := range n {
			if row != column {
				subtract(m[row], m[column], inverse[row], inverse[column], column)
			}
		}
	}
	return inverse, nil
}

func divide(a, b []float64, by float64) {
	for i := range a {
		a[i] /= by
		b[i] /= by
	}
}

// subtract takes so much of the pivot's row from a row that its column becomes 0, on both sides.
func subtract(left, leftPivot, right, rightPivot []float64, column int) {
	factor := left[column]
	for i := range left {
		left[i] -= factor * leftPivot[i]
		right[i] -= factor * rightPivot[i]
	}
}
