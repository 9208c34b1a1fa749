package report

import (
	"slices"

	"kubelot.dev/test/bench/measure"
)

// Spread are the values that the rounds had for one figure.
type Spread struct {
	Median, Least, Most float64
	Rounds              int // zero where it wasn't measured
}

// spread is that of the values; the median of an even number is the mean of the two in the middle.
func spread(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	slices.Sort(values)
	half := len(values) / 2
	median := values[half]
	if len(values)%2 == 0 {
		median = (values[half-1] + values[half]) / 2
	}
	return Spread{Median: median, Least: values[0], Most: values[len(values)-1], Rounds: len(values)}
}

// Of is the spread of the sum of a subject's figures over the rounds that have all of them.
func (r Report) Of(subject string, keys ...string) Spread {
	var values []float64
	for _, round := range r.Rounds {
		if value, ok := sum(round.Figures, keys); ok && round.Subject == subject {
			values = append(values, value)
		}
	}
	return spread(values)
}

// Compare is the spread of how a subject's figure (a sum, as in Of) relates to that of the base, round by round:
// what makes the machine slow in one round makes it slow for both. A round that lacks either doesn't count.
func (r Report) Compare(subject, base string, how func(subject, base float64) float64, keys ...string) Spread {
	bases := map[int]float64{}
	for _, round := range r.Rounds {
		if value, ok := sum(round.Figures, keys); ok && round.Subject == base {
			bases[round.Round] = value
		}
	}
	var values []float64
	for _, round := range r.Rounds {
		value, ok := sum(round.Figures, keys)
		if of, both := bases[round.Round]; ok && both && round.Subject == subject {
			values = append(values, how(value, of))
		}
	}
	return spread(values)
}

// Ratio is how often the base goes into the value; it isn't a number where the base is zero.
func Ratio(value, base float64) float64 { return value / base }

// Difference is how much the value is above the base.
func Difference(value, base float64) float64 { return value - base }

func sum(f measure.Figures, keys []string) (total float64, ok bool) {
	for _, key := range keys {
		value, has := f[key]
		if !has {
			return 0, false
		}
		total += value
	}
	return total, true
}
