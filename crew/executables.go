package crew

// Executable is a program that is shipped, with the daemons that it runs.
type Executable struct {
	// Name is the file's name. Package is that of its main function, and Module the directory of its module.
	Name, Package, Module string
	// Daemons are named without the prefix kubelot-.
	Daemons []string
}

// Executables are what daemons run from where each is a process of its own. They share the pages of one executable, but for
// those that link much more than the others (docs/adr/0007 and 0015).
func Executables() []Executable {
	shared := Executable{Name: Self, Package: "kubelot.dev/crew/cmd/" + Self, Module: "crew"}
	for _, spec := range Daemons() {
		shared.Daemons = append(shared.Daemons, spec.Name)
	}
	return []Executable{
		shared,
		{"kubelot-api", "kubelot.dev/services/api/cmd/kubelot-api", "services/api", Apart()},
	}
}
