// Package scenariotest reads the words of scenario files, which the services' tests share.
package scenariotest

import (
	"testing"
	"time"
)

// Duration reads a duration such as 1m30s. Text that is none fails the test.
func Duration(t testing.TB, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
