package dra

// pulse is where it is asked whether the loop goes on.
type pulse chan func()

// during does what waits for a disk, and answers meanwhile: a disk that hangs is no loop that hangs, and the node need
// not lose its Ready for it.
func (p pulse) during(work func() error) error {
	done := make(chan error, 1)
	go func() { done <- work() }()
	for {
		select {
		case err := <-done:
			return err
		case beat := <-p:
			beat()
		}
	}
}
