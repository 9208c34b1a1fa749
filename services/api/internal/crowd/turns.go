package crowd

// shares are how many addresses it takes to have all turns.
const shares = 8

// turns are what few have at a time: first those of an address, then those of all.
type turns [2]chan struct{}

// share are the turns of one address.
func share(all chan struct{}) turns { return turns{make(chan struct{}, max(1, cap(all)/shares)), all} }

// take waits for a turn. It reports whether there was one before the end.
func (t turns) take(end <-chan struct{}) bool {
	for i, place := range t {
		select {
		case place <- struct{}{}:
		case <-end:
			if i > 0 {
				<-t[0]
			}
			return false
		}
	}
	return true
}

func (t turns) give() {
	<-t[1]
	<-t[0]
}

// home is an address with connections. The turns of its last one may end later than that, so that an address has a few
// more for a moment.
type home struct {
	conns                    int
	senders, requests, pages turns
}
