package nats

import (
	"slices"
	"testing"
)

// A reader that starts again gets each message that it had not acknowledged, in whatever order it acknowledges.
func FuzzPosition(f *testing.F) {
	f.Add([]byte{0, 0, 0, 3, 2, 1})
	f.Add([]byte{0, 0, 9, 1, 255, 0, 1})
	f.Add([]byte{0, 1, 1, 0, 8, 1})
	f.Fuzz(func(t *testing.T, steps []byte) {
		p := &position{t: &Transport{}, acked: map[uint64]bool{}}
		var last uint64
		var open []uint64
		acks := map[uint64]func(){}
		for _, step := range steps {
			before := p.done
			which := 0
			if len(open) > 0 {
				which = int(step>>2) % len(open)
			}
			switch {
			case step == 255: // another store
				p.reset()
				for _, ack := range acks {
					ack() // too late
				}
				if before, open = 0, nil; p.done != 0 {
					t.Fatalf("the position in another store is %d", p.done)
				}
				clear(acks)
			case step%4 == 0:
				last++
				p.deliver(last)
				open, acks[last] = append(open, last), p.acker(last)
			case len(open) == 0:
			case step%4 == 1:
				p.withdraw(open[which])
				open = slices.Delete(open, which, which+1)
			default:
				acks[open[which]]()
				open = slices.Delete(open, which, which+1)
			}
			if p.done < before || len(open) > 0 && p.done >= open[0] {
				t.Fatalf("the position went from %d to %d while %v are open", before, p.done, open)
			}
		}
	})
}
