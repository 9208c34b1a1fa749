package pause

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		For(ctx, time.Second)
		if took := time.Since(began); took != time.Second {
			t.Errorf("it waited for %v", took)
		}
		For(ctx, time.Hour)
		if took := time.Since(began); took != time.Minute {
			t.Errorf("the wait ended after %v, want with its context", took)
		}
	})
}
