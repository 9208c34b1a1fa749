package diagnose

// probes are the outputs of failed probes.
var probes = []rule{
	{
		"probe-refused", `dial tcp (\S+): connect: connection refused`,
		"nothing listens at {1} in the pod", "", "",
	},
	{
		"probe-timeout", `command timed out|Client\.Timeout|context deadline exceeded|i/o timeout|did not complete within`,
		"the answer takes longer than its timeout", "", "",
	},
	{
		"probe-http-status", `HTTP probe failed with statuscode: (\d+)`,
		"the answer is HTTP {1}", "", "",
	},
	{
		"probe-unreachable", `dial tcp (\S+): connect: (?:no route to host|network is unreachable)`,
		"{1} can't be reached from this node", "", "",
	},
	{
		"probe-dns", `lookup (\S+?)(?: on \S+)?: (?:no such host|server misbehaving|.*emporary failure|.*refused)`,
		"nobody knows the host {1}", "", "",
	},
	{
		"probe-tls", `x509: .*|tls: .*|server gave HTTP response to HTTPS client`,
		"the TLS of the answer is wrong: {0}", "", "",
	},
	{
		"probe-grpc-status", `service unhealthy \(responded with "([^"]*)"\)`,
		"the gRPC health service answers {1}", "", "",
	},
	{
		"probe-grpc-service", `health rpc probe failed: .*code = NotFound`,
		"the gRPC health service doesn't know the service that the probe asks for", "", "",
	},
	{
		"probe-grpc-missing", `does not implement the grpc health protocol|code = Unimplemented`,
		"the server has no gRPC health service", "", "",
	},
	{
		"probe-command-missing", `exec: "([^"]*)": (?:executable file not found|stat [^:]*: no such file)`,
		`the image has no "{1}", which the probe runs`, "", "",
	},
	{
		"probe-port-missing", `couldn't find port: (\S+)|invalid port (?:number|")`,
		"the probe's port isn't one of the container's", "", "",
	},
}

// Probe is why a probe fails, by what it said.
func Probe(text string, names Names) Finding {
	f := otherwise(probes, text, names, Finding{Kind: "probe-fails"})
	if f.Why == "" {
		f.Why = "it says nothing"
	}
	return f
}

// Exit is what an exit code means by itself; empty if it is the program's own.
func Exit(code int32) string {
	switch code {
	case 126:
		return "a shell in it may not run a command"
	case 255:
		return "the program says so itself, or couldn't be executed: the end of its log says which"
	case 127:
		return "a shell in it didn't find a command"
	case 128 + 6:
		return "it aborted (SIGABRT)"
	case 128 + 7, 128 + 11:
		return "it crashed by a wrong memory access"
	case 128 + 9:
		return "it was killed (SIGKILL)"
	case 128 + 15:
		return "it was told to end (SIGTERM)"
	case 128 + 2:
		return "it was interrupted (SIGINT)"
	}
	return ""
}
