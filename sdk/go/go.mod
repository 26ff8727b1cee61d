module example.org/belay

go 1.21
