package main

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// unmeasured replaces the measured bytes per client, which differ between machines.
func unmeasured(algorithm) string { return "?" }

func Example_table() {
	table(os.Stdout, unmeasured)
	// Output:
	// granted, and most in a minute:  steady  most  sale  most  edge  most  waits  bytes a client
	//                                 none     270    90   356   316   240   120     0s               ?
	//                         token bucket     239    90   125    85   121    61     0s               ?
	//                   token bucket of 10     189    69    75    35    22    11     0s               ?
	//            token bucket, one of many     239    90   125    85   121    61     0s               ?
	//   token bucket, refilled each minute     180    60   100    60   180   120     0s               ?
	//                          x/time/rate     239    90   125    85   121    61     0s               ?
	//       leaky bucket of 10, queue of 5     194    69    80    40    32    16     5s               ?
	//                       nginx burst=10     190    61    76    36    24    12    10s               ?
	//               nginx burst=59 nodelay     239    90   125    85   121    61     0s               ?
	//                queue served by ticks     189    60    75    35    22    11    10s               ?
	//           fixed window, by the clock     180    60   100    60   180   120     0s               ?
	//         fixed window, from the first     180    60   100    60   120    60     0s               ?
	//                   permits per period     180    60   100    60   180   120     0s               ?
	//                          sliding log     180    60   100    60   120    60     0s               ?
	//        sliding log, rejections count      60    60    87    60    60    60     0s               ?
	//                      sliding counter     178    60    99    60   120    60     0s               ?
	//                        6 sub-windows     180    60   100    60   120    60     0s               ?
	//                               sketch     178    60    99    60   120    60     0s               ?
	//                        one at a time     135    45    66    26     4     2     0s               ?
	//              ban after 30 rejections     239    90   101    73    91    61     0s               ?
	//                      soft, 10 % more     263    90   132    92   134    68     0s               ?
	//                             adaptive     255    90   216   176   221   120     0s               ?
	//                    admission control     270    90   305   281   240   120     0s               ?
	//                      warm-up of 20 s     180    60    73    33    10     5    10s               ?
	//           saves up 10 s of idle time     190    60    86    46    44    22    10s               ?
}

func Example_plots() {
	plots(os.Stdout)
	// Output:
	// in 3s:  . 1  : 2  + 3  * 4 to 10  # 11 to 59  @ 60 or more
	//
	// steady: 3 in 2 seconds, evenly
	//                               none |************************************************************|
	//                       token bucket |***************************************+++++++++++++++++++++|
	//                 token bucket of 10 |******++++++++++++++++++++++++++++++++++++++++++++++++++++++|
	//          token bucket, one of many |***************************************+++++++++++++++++++++|
	// token bucket, refilled each minute |*************.      *************.      *************.      |
	//                        x/time/rate |***************************************+++++++++++++++++++++|
	//     leaky bucket of 10, queue of 5 |******++++++++++++++++++++++++++++++++++++++++++++++++++++++|
	//                     nginx burst=10 |++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++|
	//             nginx burst=59 nodelay |***************************************+++++++++++++++++++++|
	//              queue served by ticks |:+++++++++++++++++++++++++++++++++++++++++++++++++++++++++++|
	//         fixed window, by the clock |*************.      *************.      *************.      |
	//       fixed window, from the first |*************.      *************.      *************.      |
	//                 permits per period |*************.      *************.      *************.      |
	//                        sliding log |*************.      *************.      *************.      |
	//      sliding log, rejections count |*************.                                              |
	//                    sliding counter |*************.      :++++++++++++++++++++++++++:*:*:*:++++++|
	//                      6 sub-windows |*************.      *************.      *************.      |
	//                             sketch |*************.      :++++++++++++++++++++++++++:*:*:*:++++++|
	//                      one at a time |+:::+:::+:::+:::+:::+:::+:::+:::+:::+:::+:::+:::+:::+:::+:::|
	//            ban after 30 rejections |***************************************+++++++++++++++++++++|
	//                    soft, 10 % more |*******************************************************+++*+|
	//                           adaptive |*****************************************+***+***+***+***+**|
	//                  admission control |************************************************************|
	//                    warm-up of 20 s |:...:::+++++++++++++++++++++++++++++++++++++++++++++++++++++|
	//         saves up 10 s of idle time |++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++|
	//                                     0:00                1:00                2:00                3:00
	//
	// sale: one in 3 seconds; 300 in the 10 seconds from 0:30 on
	//                               none |..........@@@#..............................................|
	//                       token bucket |..........@++...............................................|
	//                 token bucket of 10 |..........#++...............................................|
	//          token bucket, one of many |..........@++...............................................|
	// token bucket, refilled each minute |..........#         ........................................|
	//                        x/time/rate |..........@++...............................................|
	//     leaky bucket of 10, queue of 5 |..........#++++:............................................|
	//                     nginx burst=10 |..........++++++++..........................................|
	//             nginx burst=59 nodelay |..........@++...............................................|
	//              queue served by ticks |..........:+++++++..........................................|
	//         fixed window, by the clock |..........#         ........................................|
	//       fixed window, from the first |..........#         ........................................|
	//                 permits per period |..........#         ........................................|
	//                        sliding log |..........#         ........................................|
	//      sliding log, rejections count |..........#                      ...........................|
	//                    sliding counter |..........#          .......................................|
	//                      6 sub-windows |..........#         ........................................|
	//                             sketch |..........#          .......................................|
	//                      one at a time |..........+++...............................................|
	//            ban after 30 rejections |..........@.                    ............................|
	//                    soft, 10 % more |..........@++...............................................|
	//                           adaptive |..........@##+..............................................|
	//                  admission control |..........@@@#.... .  .     .......  ...     .... . ........|
	//                    warm-up of 20 s |..........:::+++++..........................................|
	//         saves up 10 s of idle time |..........#+++++++..........................................|
	//                                     0:00                1:00                2:00                3:00
	//
	// edge: 60 in the second before each full minute, 60 in the second after it
	//                               none |                   @@                  @@                   |
	//                       token bucket |                   @.                  #.                   |
	//                 token bucket of 10 |                   *.                  *.                   |
	//          token bucket, one of many |                   @.                  #.                   |
	// token bucket, refilled each minute |                   @@                   @                   |
	//                        x/time/rate |                   @.                  #.                   |
	//     leaky bucket of 10, queue of 5 |                   *++                 *++                  |
	//                     nginx burst=10 |                   .+++:               .+++:                |
	//             nginx burst=59 nodelay |                   @.                  #.                   |
	//              queue served by ticks |                    +++:                +++:                |
	//         fixed window, by the clock |                   @@                   @                   |
	//       fixed window, from the first |                   @                   @                    |
	//                 permits per period |                   @@                   @                   |
	//                        sliding log |                   @                   @                    |
	//      sliding log, rejections count |                   @                                        |
	//                    sliding counter |                   @                   #.                   |
	//                      6 sub-windows |                   @                   @                    |
	//                             sketch |                   @                   #.                   |
	//                      one at a time |                   ..                  ..                   |
	//            ban after 30 rejections |                   @.                   #                   |
	//                    soft, 10 % more |                   @*                  @*                   |
	//                           adaptive |                   @@                  ##                   |
	//                  admission control |                   @@                  @@                   |
	//                    warm-up of 20 s |                   .....               .....                |
	//         saves up 10 s of idle time |                   #+++:               #+++:                |
	//                                     0:00                1:00                2:00                3:00
}

func TestBytesPerClient_tablesAreSmaller(t *testing.T) {
	bytes := map[string]int{}
	for _, a := range algorithms {
		if a.name == "token bucket" || a.name == "token bucket, one of many" || a.name == "sketch" {
			n, err := strconv.Atoi(bytesPerClient(a))
			require.NoError(t, err)
			bytes[a.name] = n
		}
	}
	require.Greater(t, bytes["token bucket"], 5*bytes["token bucket, one of many"])
	require.Greater(t, bytes["token bucket, one of many"], bytes["sketch"])
	require.Positive(t, bytes["sketch"])
}

func TestMaxInWindow_countsAnyWindow(t *testing.T) {
	require.Equal(t, 0, maxInWindow(nil, 10))
	require.Equal(t, 2, maxInWindow([]time.Duration{0, 9}, 10))
	require.Equal(t, 1, maxInWindow([]time.Duration{0, 10}, 10), "a window does not hold both its ends")
	require.Equal(t, 3, maxInWindow([]time.Duration{0, 8, 10, 17, 30}, 10))
}
