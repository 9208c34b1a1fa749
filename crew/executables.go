package crew

// Executable is a program that is shipped, with the daemons that it runs.
type Executable struct {
	// Name is the file's name. Package is that of its main function, and Module the directory of its module.
	Name, Package, Module string
	// Daemons are named without the prefix kubelot-.
	Daemons []string
}

// Executables are what daemons run from. Daemons share an executable, and with it the pages of its code, where they
// link the same: what a program links it initializes, and each process pays for that in memory which it shares with
// nobody (docs/adr/0015).
func Executables() []Executable {
	return []Executable{
		{"kubelot-bus", "kubelot.dev/bus/embed/cmd/kubelot-bus", "bus/embed", []string{"bus"}},
		{"kubelot-podsync", "kubelot.dev/services/podsync/cmd/kubelot-podsync", "services/podsync", []string{"podsync"}},
		{"kubelot-api", "kubelot.dev/services/api/cmd/kubelot-api", "services/api", []string{"api"}},
		{"kubelot-runtime", "kubelot.dev/crew/cmd/kubelot-runtime", "crew", []string{"stats", "pleg", "probe", "gc"}},
		{"kubelot-apiserver", "kubelot.dev/crew/cmd/kubelot-apiserver", "crew", []string{"volume", "status", "lease"}},
	}
}
