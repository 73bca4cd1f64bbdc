package main

import "os"

func Example_compare() {
	compare(os.Stdout)
	// Output:
	// 5 a minute                          11:00:59  11:01:00  then one every 6 s  granted  most in a minute
	// token bucket                        #####     ·····     ·#·#·#·#·#·#·#·     12       9
	// token bucket, refilled each minute  #####     #####     ·········#####·     15       10
	// leaky bucket, one at a time         #····     ·····     ·#·#·#·#·#·#·#·     8        5
	// fixed window, by the clock          #####     #####     ·········#####·     15       10
	// fixed window, from the first        #####     ·····     ·········#####·     10       5
	// sliding log                         #####     ·····     ·········#####·     10       5
	// sliding counter                     #####     ·····     ·#·#·#·#·#··#·#     12       9
	// sliding counter, 6 sub-windows      #####     ·····     ········#####··     10       6
}
